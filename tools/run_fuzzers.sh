#!/usr/bin/env bash
# Runs every fuzzer of build/asan for SECONDS, two at a time, with its corpus in build/fuzz/corpus. Findings stay there.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: run_fuzzers.sh SECONDS}
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
run_one() {
  local program=$1 name
  name=$(basename "$program" _fuzz)
  local corpus=build/fuzz/corpus/$name findings=build/fuzz/findings/$name
  mkdir -p "$corpus" "$findings"
  local seeds=()
  [ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
  local log=build/fuzz/$name.log
  if "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$findings/" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    printf '%s: %s runs, nothing found\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    printf '%s: FOUND something, see %s and %s\n' "$name" "$findings" "$log"
    tail -n 30 "$log"
    return 1
  fi
}
export -f run_one
export seconds
ls build/asan/fuzz/*_fuzz | xargs -P 2 -I{} bash -c 'run_one {}'
