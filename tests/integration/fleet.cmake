# Nodes' admission behind the coordinator's dispatcher.
add_executable(fleet_integration_test admission_test.cc)
target_link_libraries(fleet_integration_test PRIVATE flotilla::coordinator flotilla::provider GTest::gmock GTest::gtest GTest::gtest_main)
target_compile_definitions(fleet_integration_test PRIVATE FLOTILLA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
add_test(NAME fleet_integration_test COMMAND fleet_integration_test)
set_tests_properties(fleet_integration_test PROPERTIES LABELS integration TIMEOUT 300)
