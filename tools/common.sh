# Shared by ./quickstart and ./check: quiet steps with progress. Source it from the project's root.
if [ -t 1 ]; then fl_tty=1; else fl_tty=; fi

# step TITLE LOG COMMAND...: runs quietly, shows the time it takes, and the end of LOG when it fails.
step() {
  local title=$1 log=$2 begin=$SECONDS rc=0 pid
  shift 2
  mkdir -p "$(dirname "$log")"
  if [ -n "$fl_tty" ]; then
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
      # Ninja's own counter, where the log has one, tells how far the step is.
      printf '\r\033[K  ...  %s (%d s) %s' "$title" $((SECONDS - begin)) \
        "$(grep -oE '^\[[0-9]+/[0-9]+\]' "$log" 2>/dev/null | tail -n 1)"
      sleep 0.5
    done
    wait "$pid" || rc=$?
    printf '\r\033[K'
  else
    "$@" >"$log" 2>&1 </dev/null || rc=$?
  fi
  if [ "$rc" -eq 0 ]; then
    printf '  ok   %s (%d s)\n' "$title" $((SECONDS - begin))
  else
    printf '  FAIL %s (%d s); the end of %s:\n' "$title" $((SECONDS - begin)) "$log"
    tail -n "${FL_TAIL:-40}" "$log" | sed 's/^/       /'
  fi
  return "$rc"
}

# build PRESET TARGET...: configures when needed, then builds. A tree that was configured without the tests (by
# ./quickstart) gets them.
build() {
  local preset=$1
  shift
  if [ ! -f "build/$preset/build.ninja" ]; then
    cmake --preset "$preset" || return 1
  elif grep -q '^FLOTILLA_TESTS:BOOL=OFF' "build/$preset/CMakeCache.txt"; then
    cmake --preset "$preset" -DFLOTILLA_TESTS=ON -DFLOTILLA_BENCH=ON || return 1
  fi
  ninja -C "build/$preset" "$@"
}
