# The whole engine on the bundled model.
add_executable(engine_integration_test engine_test.cc ahead_test.cc isolation_test.cc)
target_link_libraries(engine_integration_test PRIVATE flotilla::engine GTest::gmock GTest::gtest GTest::gtest_main)
target_compile_definitions(engine_integration_test PRIVATE FLOTILLA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
# In two halves, side by side: under a sanitizer it is by far the longest test.
foreach(half 0 1)
  add_test(NAME engine_integration_test_${half} COMMAND engine_integration_test)
  set_tests_properties(engine_integration_test_${half} PROPERTIES LABELS integration TIMEOUT 600 COST 100
    ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=${half}")
endforeach()
