#!/bin/bash
# Fetches llama.cpp's libraries and measures them against flotilla. See README.md.
#   bench/peers/run.sh [BUILD_DIR] [peer_bench options, from the subcommand on]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
shift || true
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" > /dev/null
ninja -C "$build" peer_bench > /dev/null

# Outside of the sources; the lock file fixes version and digest.
peer="$build/peers"
mkdir -p "$peer"
cp bench/peers/package.json bench/peers/package-lock.json "$peer/"
(cd "$peer" && npm ci --ignore-scripts --no-audit --no-fund --silent)
libraries="$peer/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"

if [ $# -gt 0 ]; then
  exec "$build/bin/peer_bench" "$@" --peer "$libraries"
fi
"$build/bin/peer_bench" linears --peer "$libraries" --mode avx2
"$build/bin/peer_bench" linears --peer "$libraries" --mode best
