#!/bin/sh
# Runs the tests of Carve on this machine's GPU: every program beside this script, one test after another. The last line is
# "N passed, N failed"; the exit code is 0 when none failed. Needs the NVIDIA driver, and neither Rust nor a toolkit.
cd "$(dirname "$0")" || exit 2
if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
fi
date
passed=0
failed=0
count=0
total=0
for program in ./*; do
    [ "$program" = ./run.sh ] || total=$((total + 1))
done
for program in ./*; do
    [ "$program" = ./run.sh ] && continue
    count=$((count + 1))
    echo "[$count/$total] $program"
    output=$("$program" --test-threads=1 2>&1)
    code=$?
    echo "$output"
    # The totals of the harness, such as "test result: ok. 5 passed; 0 failed; ..."
    result=$(echo "$output" | sed -n 's/^test result: [A-Za-z]*\. \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' | tail -n 1)
    if [ -z "$result" ]; then
        echo "$program ended with code $code and reported nothing"
        failed=$((failed + 1))
        continue
    fi
    passed=$((passed + ${result% *}))
    failed=$((failed + ${result#* }))
    if [ "$code" -ne 0 ] && [ "${result#* }" -eq 0 ]; then
        echo "$program ended with code $code after its tests"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
