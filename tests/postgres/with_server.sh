#!/usr/bin/env bash
# Starts a PostgreSQL server of its own in a temporary folder, runs a command with FLOTILLA_TEST_POSTGRES set to its URL (and
# FLOTILLA_TEST_POSTGRES_PID to its process), and removes everything again.   tests/postgres/with_server.sh build/release/bin/store_test
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }

shopt -s nullglob
candidates=(/usr/lib/postgresql/*/bin)
[ ${#candidates[@]} -gt 0 ] || { echo "PostgreSQL is not installed: tools/install_packages.sh tests" >&2; exit 1; }
bin=${candidates[-1]}

# The server refuses to run as root.
as_user=()
user=$(id -un)
if [ "$(id -u)" -eq 0 ]; then
  user=nobody
  getent passwd postgres >/dev/null && user=postgres
  as_user=(runuser -u "$user" --)
fi

dir=$(mktemp -d)
chmod 711 "$dir"
mkdir "$dir/data" "$dir/socket"
chown "$user" "$dir/data" "$dir/socket" 2>/dev/null || true
stop() {
  status=$?
  (cd "$dir" && "${as_user[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate -s stop >/dev/null 2>&1) || true
  [ $status -eq 0 ] || tail -n 20 "$dir/log" 2>/dev/null >&2 || true
  rm -rf "$dir"
}
trap stop EXIT
: >"$dir/log"; chmod 666 "$dir/log"

work=$PWD
cd "$dir"   # the user may not enter the present folder
"${as_user[@]}" "$bin/initdb" -D "$dir/data" -U flotilla -A trust --no-sync >"$dir/log" 2>&1
# Its socket alone: no port that could be taken, or that others could reach.
"${as_user[@]}" "$bin/pg_ctl" -D "$dir/data" -s -w -l "$dir/log" \
  -o "-c listen_addresses='' -c unix_socket_directories='$dir/socket'" start
"${as_user[@]}" "$bin/createdb" -h "$dir/socket" -U flotilla flotilla
cd "$work"
FLOTILLA_TEST_POSTGRES="postgresql://flotilla@/flotilla?host=$dir/socket" \
FLOTILLA_TEST_POSTGRES_PID=$(head -n 1 "$dir/data/postmaster.pid") "$@"
