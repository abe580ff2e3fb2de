#!/bin/sh
# Runs the tests and benchmarks of Carve on this machine's GPU: every program of this folder, one test after another. The last line
# is "N passed, N failed"; the exit code is 0 when none failed. Needs the NVIDIA driver, and neither Rust nor a toolkit.
#
#   run.sh            everything
#   run.sh --quick    a selection of captures, and no measurements: the benchmark only shows that it works
cd "$(dirname "$0")" || exit 2
quick=
case "$1" in
"") ;;
--quick) quick=1 ;;
*)
    echo "usage: run.sh [--quick]"
    exit 2
    ;;
esac

# The programs were linked against this version of the C library; an older one can't start them.
needed=$(cat glibc)
here=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ -z "$here" ]; then
    echo "these programs need glibc $needed, and this machine has another C library"
    exit 3
fi
oldest=$(printf '%s\n%s\n' "$needed" "$here" | sort -t. -k1,1n -k2,2n | head -n 1)
if [ "$oldest" != "$needed" ]; then
    echo "these programs need glibc $needed or newer, and this machine has $here"
    exit 3
fi

if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
fi
date
passed=0
failed=0
count=0
set --
for program in tests/* programs/*; do
    # Folders hold what programs read.
    [ -f "$program" ] && set -- "$@" "$program"
done
total=$#
for program in "$@"; do
    count=$((count + 1))
    # What a test makes, such as files and folders, is its own.
    case "$program" in
    tests/*) arguments=--test-threads=1 ;;
    programs/test_capture) arguments=${quick:+--quick} ;;
    programs/bench_gpu) if [ -n "$quick" ]; then arguments=--smoke; else arguments="--json bench-gpu.json"; fi ;;
    *) arguments= ;;
    esac
    echo "[$count/$total] $program $arguments"
    # shellcheck disable=SC2086
    "$program" $arguments >output.txt 2>&1
    code=$?
    cat output.txt
    # The totals of the harness, such as "test result: ok. 5 passed; 0 failed; ..."
    result=$(sed -n 's/^test result: [A-Za-z]*\. \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' output.txt | tail -n 1)
    if [ -z "$result" ]; then
        # A program that is no test reports by its exit code alone.
        case "$program $code" in
        "tests/"* | "programs/test_capture "*) result="0 1" ;;
        *" 0") result="1 0" ;;
        *) result="0 1" ;;
        esac
        [ "${result#* }" -eq 0 ] || echo "FAILED: $program ended with code $code"
    elif [ "$code" -ne 0 ] && [ "${result#* }" -eq 0 ]; then
        echo "FAILED: $program ended with code $code after its tests"
        result="${result% *} 1"
    fi
    passed=$((passed + ${result% *}))
    failed=$((failed + ${result#* }))
done
# What NVIDIA's checker finds in the suite, where it is installed.
if [ -z "$quick" ]; then
    for tool in memcheck synccheck; do
        if ! command -v compute-sanitizer >/dev/null 2>&1; then
            echo "not run: compute-sanitizer --tool $tool, which is not installed"
            continue
        fi
        echo "compute-sanitizer --tool $tool tests/hardware"
        if compute-sanitizer --tool "$tool" --error-exitcode 9 tests/hardware --test-threads=1; then
            passed=$((passed + 1))
        else
            echo "FAILED: $tool ended with code $?"
            failed=$((failed + 1))
        fi
    done
fi
rm -f output.txt
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
