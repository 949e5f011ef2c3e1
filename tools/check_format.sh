#!/usr/bin/env bash
# Fails when clang-format would change a source file; "tools/check_format.sh --fix" lets it.
set -euo pipefail
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format)
files() { find flotilla apps bench tests tools -name node_modules -prune -o \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0; }
if [ "${1:-}" = --fix ]; then
  files | xargs -0 "$format" -i
else
  files | xargs -0 "$format" --dry-run -Werror
fi
