#!/usr/bin/env bash
# Kill a run without warning, start the same command again, count: every row is there, once.
# Run: bash examples/resume.sh [FOLDER]
set -euo pipefail
folder=${1:-$(mktemp -d)}
rows=2000
PYTHON=${PYTHON:-python3}
mkdir -p "$folder"

for i in $(seq "$rows"); do printf '{"id": %d, "word": "word %d"}\n' "$i" "$i"; done > "$folder/rows.jsonl"

# The echo engine sleeps 20 ms a row with 16 rows at a time, so the run lasts a few seconds.
run() {
    exec "$PYTHON" -m rowmill run "$folder/rows.jsonl" -o "$folder/out" --prompt "Say {word}" --engine echo \
        --set engine.delay_s=0.02 --set engine.seats=16 --set run.checkpoint_s=0.2 2> "$folder/log"
}

(run) &
pid=$!
answered() { cat "$folder"/out/segments/*/* 2> /dev/null | wc -l; }
until [ "$(answered)" -gt 100 ] || ! kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
kill -9 "$pid" || { cat "$folder/log" >&2; exit 1; }
wait "$pid" 2> /dev/null || true
echo "killed with about $(answered) of $rows rows answered"

(run) || { cat "$folder/log" >&2; exit 1; }
total=$(cat "$folder"/out/results/part-*.jsonl | wc -l)
distinct=$(cat "$folder"/out/results/part-*.jsonl | "$PYTHON" -c \
    'import json, sys; print(len({json.loads(line)["id"] for line in sys.stdin}))')
echo "after the second run: $total rows, $distinct distinct, $rows asked"
[ "$total" -eq "$rows" ] && [ "$distinct" -eq "$rows" ]
