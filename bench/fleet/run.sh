#!/usr/bin/env bash
# Measures the coordinator beside haproxy on the same answers, interleaved in one run.
#   bench/fleet/run.sh BIN_DIR [OUT]          needs haproxy (Debian: apt-get install haproxy) and python3
# The server under test runs on processor 0, all that surrounds it on processor 1. FLEET_ROUNDS (3), FLEET_SECONDS (4),
# FLEET_RATES ("1000 3000"), FLEET_STREAMS (10000; 0: leave out). Prints a table; raw lines go to OUT.
set -euo pipefail
bin=$(cd "${1:?the folder of the programs, such as build/release/bin}" && pwd)
work=$(mktemp -d)
out=${2:-$work/raw.jsonl}
: >"$out"
rounds=${FLEET_ROUNDS:-3} seconds=${FLEET_SECONDS:-4} rates=${FLEET_RATES:-1000 3000} streams=${FLEET_STREAMS:-10000}
io_threads=${FLEET_IO_THREADS:-1}  # one processor, one thread: as haproxy
# A stream is two files in haproxy, which does not start when it may not have them.
ulimit -n "$(ulimit -Hn)"
haproxy_streams=$((($(ulimit -n) - 300) / 2))
[ "$streams" -lt "$haproxy_streams" ] && haproxy_streams=$streams
[ "$haproxy_streams" -gt 1000 ] || haproxy_streams=1000
command -v haproxy >/dev/null || { echo "haproxy is missing: apt-get install haproxy" >&2; exit 1; }

pids=()
cleanup() { kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
base=$((20000 + RANDOM % 8000))
free() { base=$((base + 1)); port=$base; }
start() { "$@" >>"$work/log" 2>&1 & pids+=($!); pid=$!; }
server() { start taskset -c 0 "$@"; }
client() { taskset -c 1 "$bin/fleet_bench" "$@"; }
until_ready() { for _ in $(seq 100); do curl -fsS -o /dev/null "$1" 2>/dev/null && return; sleep 0.1; done; echo "no answer from $1" >&2; exit 1; }
until_said() { for _ in $(seq 300); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.1; done; cat "$1" >&2; exit 1; }

# coordinator NAME: sets url, key, link, database
coordinator() {
  free
  database=$work/$1.sqlite link=ws://127.0.0.1:$port/v1/link
  server "$bin/flotilla-coordinator" serve --database "$database" --listen "127.0.0.1:$port" --log-level warn --io-threads "$io_threads"
  coordinator_pid=$pid coordinator_url=http://127.0.0.1:$port/v1/chat/completions
  until_ready "http://127.0.0.1:$port/healthz"
  key=$("$bin/flotilla-coordinator" keys create --name bench --quiet --database "$database")
  sleep 1  # until the server has noticed it
}
nodes() {  # MODEL ARGS...
  local model=$1; shift
  taskset -c 1 "$bin/fleet_bench" nodes --database "$database" --url "$link" --nodes 4 --slots 4000 --model "$model" "$@" >"$work/$model.nodes" 2>&1 &
  pids+=($!)
  until_said "$work/$model.nodes" ready
}
haproxy_before() {  # MOCK_PORT
  free
  cat >"$work/haproxy-$port.cfg" <<CFG
global
  maxconn $haproxy_streams
  nbthread 1
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 120s
  timeout server 120s
frontend clients
  bind 127.0.0.1:$port
  default_backend upstream
backend upstream
  server mock 127.0.0.1:$1
CFG
  server haproxy -db -f "$work/haproxy-$port.cfg"
  haproxy_pid=$pid haproxy_url=http://127.0.0.1:$port/v1/chat/completions
}
mock() {  # ARGS...
  free
  start taskset -c 1 "$bin/fleet_bench" mock --listen "http://127.0.0.1:$port" "$@"
  mock_pid=$pid mock_port=$port mock_url=http://127.0.0.1:$port/v1/chat/completions
}
measure() {  # WHAT WHO URL PID ARGS...
  local what=$1 who=$2 url=$3 of=$4; shift 4
  local line
  line=$(client load --url "$url" --key "$key" --server-pid "$of" --json "$@") || echo "$what, $who: not every request was answered" >&2
  echo "{\"what\":\"$what\",\"who\":\"$who\",\"result\":$line}" >>"$out"
}

coordinator plain
nodes whole --tokens 2000 --tokens-per-frame 16   # sixteen tokens: one frame
nodes single --tokens 2000                        # a frame for each
mock --tokens 2000
haproxy_before "$mock_port"
sleep 0.5
for round in $(seq "$rounds"); do
  for rate in $rates; do
    args=(--rate "$rate" --seconds "$seconds" --max-tokens 16)
    measure "$rate" direct "$mock_url" "$mock_pid" "${args[@]}"
    measure "$rate" haproxy "$haproxy_url" "$haproxy_pid" "${args[@]}"
    measure "$rate" coordinator "$coordinator_url" "$coordinator_pid" "${args[@]}" --model whole
  done
  args=(--closed 100 --seconds "$seconds" --max-tokens 2000)
  measure saturated haproxy "$haproxy_url" "$haproxy_pid" "${args[@]}"
  measure saturated coordinator-16 "$coordinator_url" "$coordinator_pid" "${args[@]}" --model whole
  measure saturated coordinator-1 "$coordinator_url" "$coordinator_pid" "${args[@]}" --model single
done

hold() {  # WHO URL PID STREAMS
  local line
  line=$(client streams --url "$2" --key "$key" --model slow --streams "$4" --opens-per-s 700 --hold 6 --server-pid "$3" --json) ||
    echo "streams, $1: not all were open" >&2
  echo "{\"what\":\"streams\",\"who\":\"$1\",\"result\":$line}" >>"$out"
}
if [ "$streams" -gt 0 ]; then
  coordinator slow
  nodes slow --tokens 1000000 --interval-ms 5000
  hold coordinator "$coordinator_url" "$coordinator_pid" "$streams"
  mock --tokens 1000000 --interval-ms 5000
  haproxy_before "$mock_port"
  sleep 1
  hold haproxy "$haproxy_url" "$haproxy_pid" "$haproxy_streams"
fi

python3 - "$out" <<'PY'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
groups = {}
for line in lines:
    groups.setdefault((line['what'], line['who']), []).append(line['result'])
median = lambda values: statistics.median(values)
for (what, who), results in groups.items():
    if what == 'streams':
        print(f"{what:>10} {who:<15} {median([r['bytes_per_stream'] for r in results]):9.0f} bytes a stream")
    elif what == 'saturated':
        print(f"{what:>10} {who:<15} {median([r['events_per_s'] for r in results]):9.0f} events/s, "
              f"{median([r['events_per_cpu_s'] for r in results]):9.0f} for a second of its processor time")
    else:
        direct = groups[(what, 'direct')]
        added = lambda q: median([r['whole_ms'][q] - d['whole_ms'][q] for r, d in zip(results, direct)])
        print(f"{what:>10} {who:<15} p50 {median([r['whole_ms']['p50'] for r in results]):7.3f}  p99 {median([r['whole_ms']['p99'] for r in results]):7.3f} ms, "
              f"added p50 {added('p50'):7.3f}  p99 {added('p99'):7.3f} ms, {median([r['cpu_us_per_request'] for r in results]):6.1f} us a request, "
              f"{sum(r['failed'] for r in results)} failed")
PY
