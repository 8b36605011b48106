#!/usr/bin/env bash
# A pipeline on Spark, from rows to a report whose every number can be proven; a run that is killed and resumed; and a
# log from import to tampering. Every step states what it shows and fails if that does not hold. Nothing is fetched;
# everything is kept under build/demo and made afresh each time.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
command -v noetl >/dev/null || { echo "demo: noetl is not installed here; run 'make setup' first" >&2; exit 3; }
unset "${!NOETL_@}"
python - <<'PYTHON' || exit 3
import sys

from noetl.data.session import SparkUnavailable
from noetl.data.session.distribution import need_spark
from noetl.data.session.java import find_java

try:
    need_spark()
    find_java()
except SparkUnavailable as error:
    sys.exit(f"demo: {error}")
PYTHON

DEMO=build/demo
ID=287011189555228672
rm -rf "$DEMO"
mkdir -p "$DEMO"
export NOETL_HOME=$PWD/$DEMO/runs

BOLD='' DIM='' RED='' GREEN='' OFF=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
    BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' OFF=$'\e[0m'
fi
STEP=0
OUT=''

headline() {
    STEP=$((STEP + 1))
    printf '\n%s%d. %s%s\n' "$BOLD" "$STEP" "$1" "$OFF"
}

fail() {
    printf '\n%sThe demo failed: %s%s\n' "$RED" "$1" "$OFF" >&2
    exit 1
}

# run EXIT COMMAND...: show the command, run it, keep its output in OUT, insist on its exit code.
run() {
    local expected=$1 code=0
    shift
    printf '%s$ %s%s\n' "$DIM" "$*" "$OFF"
    OUT=$("$@" 2>&1) || code=$?
    [[ $code -eq $expected ]] || fail "'$*' gave exit code $code instead of $expected: $OUT"
}

# watch COMMAND...: show the command and what it says on its way, on a terminal as a moving picture; not its result.
watch() {
    local code=0
    printf '%s$ %s%s\n' "$DIM" "$*" "$OFF"
    "$@" 2>&1 >/dev/null || code=$?
    [[ $code -eq 0 ]] || fail "'$*' gave exit code $code"
}

# Blank lines and the padding of tables are for other occasions.
show() { sed -e 's/ *$//' -e '/^$/d' -e "s/^ok /${GREEN}ok${OFF} /" -e "s/^MISMATCH /${RED}MISMATCH${OFF} /" <<<"${1:-$OUT}"; }

expect() { [[ $OUT == *"$1"* ]] || fail "expected to read '$1' in: $OUT"; }

# replay POSITION STATUS: the state as of a position, reduced to its summary; its checksum goes to CHECKSUM.
replay() {
    run 0 noetl replay $ID --at-position "$1"
    show "$(grep -E '^  (status|events|state) ' <<<"$OUT")"
    expect "status     $2"
    CHECKSUM=$(awk '$1 == "state" { print $2 }' <<<"$OUT")
    [[ ${#CHECKSUM} -eq 64 ]] || fail "no checksum in: $OUT"
}

# change DIRECTORY SQL: a copy of the home in which one row was changed behind NoETL's back.
change() {
    rm -rf "$1"
    cp -a "$DEMO/home" "$1"
    printf '%ssql> %s%s\n' "$DIM" "$2" "$OFF"
    python - "$1/ledger.db" "$2" <<'PYTHON' || fail "the copy could not be changed"
import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1])
with connection:
    changed = connection.execute(sys.argv[2]).rowcount
connection.close()
sys.exit(changed != 1)
PYTHON
}

# detect DIRECTORY: verify the changed copy; this must exit 4.
detect() {
    run 4 noetl verify $ID --home "$1"
    show
    printf '%sexit 4%s\n' "$DIM" "$OFF"
}

# field NAME: a field of the JSON document in OUT.
field() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$OUT"; }

# prove ID: what the rows that were written during the run come to, and what the log gives when it is replayed.
prove() {
    run 0 noetl status "$1" --json
    LIVE=$(field checksum)
    run 0 noetl replay "$1" --json
    REPLAYED=$(field checksum)
    printf '  live       %s\n  replayed   %s\n' "$LIVE" "$REPLAYED"
    [[ ${#LIVE} -eq 64 && $LIVE == "$REPLAYED" ]] || fail "the live state is not the replayed one"
    run 0 noetl verify "$1"
    show
    expect "ok "
}

PLAYBOOKS=../../../examples
ROWS=1000000
mkdir -p $DEMO/work
cd $DEMO/work

headline "Run a pipeline on Spark: a million orders are made, cleaned, priced in frames, and added up by country"
watch noetl run $PLAYBOOKS/18_data_quality.yaml --set rows=$ROWS
PIPELINE=$(noetl list --json | python -c 'import json, sys; print(json.load(sys.stdin)["executions"][0]["execution_id"])')

headline "What the checks found: rows that were dropped, rows that were counted, and none that must stop the run"
run 0 noetl result "$PIPELINE" clean --field expect --columns name,check,on_fail,failed
show
expect "known_country"

headline "The report: a Parquet file, and a table for eyes"
run 0 noetl result "$PIPELINE" report --table
show
expect "NO "
run 0 ls quality/report
show

headline "Prove it: the state that was live is the state that the log gives, frames and all"
prove "$PIPELINE"

headline "Kill a run with -9 in the middle of a step, and resume it"
cat >killed.yaml <<'YAML'
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: killed, path: demo/killed}
workflow:
  - step: before
    tool: {kind: shell, cmds: ["echo before >>ran.txt"]}
    next: {arcs: [{step: middle}]}
  - step: middle
    tool: {kind: shell, cmds: ["echo middle >>ran.txt; until [ -e go ]; do sleep 0.1; done"]}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: shell, cmds: ["echo after >>ran.txt"]}
YAML
printf '%s$ noetl run killed.yaml --key demo & ... kill -9 $!%s\n' "$DIM" "$OFF"
noetl run killed.yaml --key demo >/dev/null 2>&1 &
RUN=$!
for _ in {1..300}; do grep -qs middle ran.txt && break || sleep 0.1; done
kill -9 $RUN || fail "the run was over before it was killed"
wait $RUN 2>/dev/null || true
touch go
run 0 noetl run killed.yaml --key demo --json
KILLED=$(field execution_id)
[[ $(field status) == COMPLETED ]] || fail "it did not go on: $OUT"
run 0 cat ran.txt
show
[[ $OUT == $'before\nmiddle\nmiddle\nafter' ]] || fail "a step that had ended was run again: $OUT"

headline "Prove that too, though two processes wrote it"
prove "$KILLED"
cd - >/dev/null
export NOETL_HOME=$DEMO/home

headline "Bring a log in: every checksum and every link of the chain is checked first"
run 0 noetl import examples/logs/orders.jsonl
show
expect "Imported 87 events"
run 0 noetl list
expect "sales/orders_daily"

headline "Look at it: a worker dies, its frame is abandoned and given to another"
run 0 noetl events $ID --cursor 60 --limit 6
show "$(grep -v '^More' <<<"$OUT")"
expect "frame.abandoned"

headline "Replay it at three moments: inside a loop, while the frame is abandoned, at the end"
replay 24 RUNNING
LOOP=$CHECKSUM
replay 63 RUNNING
ABANDONED=$CHECKSUM
replay 87 COMPLETED
END=$CHECKSUM
[[ $LOOP != "$ABANDONED" && $ABANDONED != "$END" ]] || fail "different states have the same checksum"

headline "Ask what one event changed"
run 0 noetl diff $ID --from 62 --to 63
show
expect "status: RUNNING -> ABANDONED"

headline "Verify it: events, chains, seals, heads under the wallet's key, and the live rows"
run 0 noetl verify --all
show
expect "ok  ledger"

headline "Carry it elsewhere: the bytes and the state are the same"
run 0 noetl export $ID --out $DEMO/orders.jsonl
run 0 cmp examples/logs/orders.jsonl $DEMO/orders.jsonl
run 0 noetl export $ID --format feather --out $DEMO/orders.feather
show
run 0 noetl import $DEMO/orders.feather --home $DEMO/elsewhere
show
run 0 noetl replay $ID --home $DEMO/elsewhere
show "$(grep -E '^  state ' <<<"$OUT")"
expect "$END"

headline "Change one byte of one event in a copy: verify names the event"
change $DEMO/changed "UPDATE event SET payload = replace(payload, ':64,', ':65,') WHERE position = 19"
detect $DEMO/changed
expect "event 287011191232950275 does not match its checksum"

headline "Delete one event in a copy: verify names the event"
change $DEMO/deleted "DELETE FROM event WHERE position = 31"
detect $DEMO/deleted
expect "event 287011191736266754 is missing"

headline "Change one live row in a copy: verify names surface, row and field"
change $DEMO/rewritten "UPDATE projection SET row = json_set(row, '\$.row_count', 41) WHERE row_id = '287011193749532672'"
detect $DEMO/rewritten
expect "frames row 287011193749532672, field 'row_count': live 41, replayed 40"

printf '\n%sAll %d steps held.%s Look around: .venv/bin/noetl list --home %s\n' "$GREEN" "$STEP" "$OFF" "$NOETL_HOME"
