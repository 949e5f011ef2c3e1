#!/usr/bin/env bash
# End-to-end tests: real processes on loopback, driven by the clients that people use.
#   FLOTILLA_BIN=build/release/bin tests/e2e/run.sh [FILE.test.mjs...]
# FLOTILLA_E2E_SLOW=1 multiplies every deadline, for sanitizer builds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${FLOTILLA_BIN:?set FLOTILLA_BIN to the folder of the programs, such as build/release/bin}"
FLOTILLA_BIN=$(cd "$FLOTILLA_BIN" && pwd)
export FLOTILLA_BIN
for program in flotilla flotilla-coordinator; do
  [ -x "$FLOTILLA_BIN/$program" ] || { echo "$FLOTILLA_BIN/$program is missing: build it first" >&2; exit 1; }
done

# As tests/npm/install.sh does for all folders.
wanted=$(sha256sum "$here/npm/package-lock.json" | cut -d' ' -f1)
if [ "$(cat "$here/npm/node_modules/.installed" 2>/dev/null)" != "$wanted" ]; then
  (cd "$here/npm" && npm ci --no-audit --no-fund --loglevel=error)
  echo "$wanted" >"$here/npm/node_modules/.installed"
fi

files=("$@")
[ ${#files[@]} -gt 0 ] || files=("$here"/*.test.mjs)

# Most of a test is waiting, so two files run at a time, each with its output kept together. The one that judges the
# fleet's pauses by the clock comes last and has the machine for itself.
together=() alone=()
for file in "${files[@]}"; do
  case $(basename "$file") in
    chaos.test.mjs) alone+=("$file") ;;
    *) together+=("$file") ;;
  esac
done
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
run_file() {
  local rc=0 log=$1/$(basename "$2").log
  node --test "$2" >"$log" 2>&1 || rc=$?
  flock "$1" cat "$log"
  return "$rc"
}
export -f run_file
rc=0
if [ ${#together[@]} -gt 0 ]; then
  printf '%s\0' "${together[@]}" | xargs -0 -P 2 -I{} bash -c 'run_file "$@"' run_file "$outputs" {} || rc=1
fi
for file in "${alone[@]}"; do
  run_file "$outputs" "$file" || rc=1
done
exit "$rc"
