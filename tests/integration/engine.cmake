# The whole engine on the bundled model.
add_executable(engine_integration_test engine_test.cc ahead_test.cc isolation_test.cc)
target_link_libraries(engine_integration_test PRIVATE flotilla::engine GTest::gmock GTest::gtest GTest::gtest_main)
target_compile_definitions(engine_integration_test PRIVATE FLOTILLA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
add_test(NAME engine_integration_test COMMAND engine_integration_test)
set_tests_properties(engine_integration_test PROPERTIES LABELS integration TIMEOUT 600)
