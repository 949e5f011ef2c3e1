# Compiler settings and the flotilla_library() helper.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

find_program(FLOTILLA_CCACHE ccache)
if(FLOTILLA_CCACHE)
  # Precompiled headers and time macros would otherwise defeat the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${FLOTILLA_CCACHE})
endif()
find_program(FLOTILLA_MOLD mold)

# One pool for the translation units that instantiate Beast: two at once would starve a small machine.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS heavy=1)

add_library(flotilla_options INTERFACE)
target_include_directories(flotilla_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(flotilla_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off)
if(FLOTILLA_WERROR)
  target_compile_options(flotilla_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(flotilla_options INTERFACE -fpch-preprocess)  # lets ccache see through it
endif()
if(FLOTILLA_SANITIZE)
  target_compile_options(flotilla_options INTERFACE
    -fsanitize=${FLOTILLA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(flotilla_options INTERFACE -fsanitize=${FLOTILLA_SANITIZE})
  if(FLOTILLA_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns about std::atomic_thread_fence inside Asio; the tests do not depend on it.
    target_compile_options(flotilla_options INTERFACE -Wno-tsan)
  endif()
endif()
if(FLOTILLA_MOLD)
  target_link_options(flotilla_options INTERFACE -fuse-ld=mold)
endif()
if(FLOTILLA_FUZZERS)
  target_compile_options(flotilla_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_package(Threads REQUIRED)
target_link_libraries(flotilla_options INTERFACE Threads::Threads)

if(FLOTILLA_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# Precompiled headers: one for libraries and programs, one with GoogleTest for tests. They are an optimisation only: every
# file still includes what it uses. A file with options of its own (-mavx2) falls back to the plain headers by itself.
option(FLOTILLA_PCH "Use precompiled headers" ON)
function(flotilla_define_pch)
  if(NOT FLOTILLA_PCH)
    return()
  endif()
  # The macros of Boost.JSON must be the same wherever the header is used.
  target_link_libraries(flotilla_options INTERFACE Boost::json)
  set(empty ${CMAKE_BINARY_DIR}/pch_empty.cc)
  file(WRITE ${empty} "")
  set(headers <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map> <memory> <mutex> <optional> <span>
    <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <boost/json.hpp>)
  add_library(flotilla_pch STATIC ${empty})
  target_link_libraries(flotilla_pch PRIVATE flotilla_options)
  target_precompile_headers(flotilla_pch PRIVATE ${headers})
  if(FLOTILLA_TESTS)
    add_library(flotilla_test_pch STATIC ${empty})
    target_link_libraries(flotilla_test_pch PRIVATE flotilla_options GTest::gmock GTest::gtest)
    target_precompile_headers(flotilla_test_pch PRIVATE ${headers} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endfunction()
function(flotilla_use_pch target pch)
  if(TARGET ${pch})
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

# flotilla_library(NAME [HEAVY] SRCS ... [HEAVY_SRCS ...] [DEPS ...] [LIBS ...] [PRIVATE_LIBS ...]
#                  [TESTS ...] [TEST_DEPS ...] [TEST_LIBS ...])
# Makes the static library flotilla::NAME and, when TESTS are given, the executable NAME_test.
#   DEPS / TEST_DEPS   names of other flotilla libraries
#   LIBS               targets of third parties, visible to users; PRIVATE_LIBS only to the sources
# Test sources find data through the macro FLOTILLA_SOURCE_DIR (a string literal).
function(flotilla_library name)
  cmake_parse_arguments(ARG "HEAVY" "" "SRCS;DEPS;LIBS;PRIVATE_LIBS;TESTS;TEST_DEPS;TEST_LIBS" ${ARGN})
  set(target flotilla_${name})
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(flotilla::${name} ALIAS ${target})
  set(deps "")
  foreach(dep IN LISTS ARG_DEPS)
    list(APPEND deps flotilla::${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC flotilla_options ${deps} ${ARG_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  flotilla_use_pch(${target} flotilla_pch)
  if(ARG_HEAVY)
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE heavy)
  endif()
  if(FLOTILLA_TESTS AND ARG_TESTS)
    set(test_deps "")
    foreach(dep IN LISTS ARG_TEST_DEPS)
      list(APPEND test_deps flotilla::${dep})
    endforeach()
    add_executable(${name}_test ${ARG_TESTS})
    target_link_libraries(${name}_test PRIVATE ${target} ${test_deps} ${ARG_TEST_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE FLOTILLA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    flotilla_use_pch(${name}_test flotilla_test_pch)
    # One ctest entry per module: starting a process for each case would cost more than the cases.
    add_test(NAME ${name}_test COMMAND ${name}_test)
    set_tests_properties(${name}_test PROPERTIES LABELS unit TIMEOUT 300)
  endif()
endfunction()

# flotilla_program(NAME SRCS ... [DEPS ...] [LIBS ...])
function(flotilla_program name)
  cmake_parse_arguments(ARG "" "OUTPUT" "SRCS;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  set(deps "")
  foreach(dep IN LISTS ARG_DEPS)
    list(APPEND deps flotilla::${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE flotilla_options ${deps} ${ARG_LIBS})
  target_compile_definitions(${name} PRIVATE FLOTILLA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE FLOTILLA_VERSION="${PROJECT_VERSION}")
  flotilla_use_pch(${name} flotilla_pch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  if(ARG_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT})
  endif()
endfunction()

# flotilla_compile_together(TARGET FILE...): the files become one translation unit. For files that instantiate the same
# heavy templates (CLI11 costs 8 s of code in each file that uses it, under ASan).
function(flotilla_compile_together target)
  list(GET ARGN 0 group)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
endfunction()

# flotilla_fuzzer(NAME SRC [DEPS ...]): a libFuzzer target NAME_fuzz, built only with FLOTILLA_FUZZERS.
function(flotilla_fuzzer name source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  if(NOT FLOTILLA_FUZZERS)
    return()
  endif()
  set(deps "")
  foreach(dep IN LISTS ARG_DEPS)
    list(APPEND deps flotilla::${dep})
  endforeach()
  add_executable(${name}_fuzz ${source})
  target_link_libraries(${name}_fuzz PRIVATE flotilla_options ${deps})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
