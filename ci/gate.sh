# Runs gates and counts them (sourced by ci/test and ci/full, which set `results`).

# gate NAME COMMAND…: one line, `ok NAME 12.3s`, `FAILED NAME (log: …)` or `skip NAME: reason`.
gate() {
    local name=$1 log=$out/logs/$1.log start=$EPOCHREALTIME code=0 seconds line
    shift
    ("$@") >"$log" 2>&1 </dev/null || code=$?
    seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")
    case $code in
    0) line="ok $name ${seconds}s$(sed -n 's/^= /  /p' "$log" | tail -1)" ;;
    77) line="skip $name: $(sed -n 's/^skip: //p' "$log" | tail -1)" ;;
    *) line="FAILED $name (log: $log)" ;;
    esac
    # Parts that the gate left out are told by name too; one write, so that lanes do not mix.
    { echo "$line"; grep -E '^skip [^ ]+: ' "$log" | sort -u || true; } >"$log.line"
    flock "$results" cat "$log.line" | tee -a "$results"
}

# total FILE…: what the failed gates said, then the last line of a run; fails when a gate did.
total() {
    local failed name
    for name in $(cat "$@" | sed -n 's/^FAILED \([^ ]*\) .*/\1/p'); do
        echo "---- $name: lines that tell of a failure, then the end of its log"
        grep -nE '\[FAIL\]|^(FAIL|FAILED|not ok|error:) |ERROR: |runtime error|TIMEOUT| failed' "$out/logs/$name.log" | tail -12 || true
        tail -12 "$out/logs/$name.log" | cut -c1-300
    done
    failed=$(cat "$@" | grep -c '^FAILED ' || true)
    echo "$(cat "$@" | grep -c '^ok ' || true) passed, $failed failed, $(cat "$@" | grep -c '^skip ' || true) skipped"
    [ "$failed" = 0 ]
}
