#!/usr/bin/env bash
# Installs the npm packages of the tests, as pinned by their lock files. Does nothing when they are in place.
set -euo pipefail
cd "$(dirname "$0")/.."
for folder in npm e2e/npm; do
  [ -f "$folder/package-lock.json" ] || continue
  wanted=$(sha256sum "$folder/package-lock.json" | cut -d' ' -f1)
  [ "$(cat "$folder/node_modules/.installed" 2>/dev/null)" = "$wanted" ] && continue
  (cd "$folder" && npm ci --no-audit --no-fund)
  echo "$wanted" >"$folder/node_modules/.installed"
done
