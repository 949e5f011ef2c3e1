#!/usr/bin/env bash
# Installs what the build needs from Debian packages. With "tests": also what ./check needs. Does nothing when all is there.
set -euo pipefail

build_packages=(g++ cmake ninja-build pkg-config ccache mold git ca-certificates curl jq
  libboost1.81-dev libboost-json1.81-dev libboost-container1.81-dev libssl-dev libsodium-dev libcurl4-openssl-dev
  libsoci-dev libsqlite3-dev libpq-dev libspdlog-dev libtomlplusplus-dev libcli11-dev prometheus-cpp-dev
  libpcre2-dev libutf8proc-dev libhwy-dev libedit-dev)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev clang clang-format-14 clang-tidy-14 libclang-rt-14-dev
  libc++-14-dev llvm-14 python3 openssl procps postgresql)

packages=("${build_packages[@]}")
if [ "${1:-}" = tests ]; then
  packages+=("${test_packages[@]}")
  # Any Node 18 or later will do; Debian's is installed only where there is none.
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then packages+=(nodejs npm); fi
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "These packages are missing and this is not a Debian system: ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Run as root, or install sudo. Missing packages: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { "${sudo[@]}" apt-get update -qq && "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "Installing packages failed: ${missing[*]}" >&2
  exit 1
fi
