#!/bin/sh
# Runs the tests and benchmarks of Carve on this machine's GPU, one program after another. Needs the NVIDIA driver, and neither Rust nor
# a toolkit; writes nothing into its own folder. The last line is "N passed, N failed".
usage="usage: run.sh [--quick] [--out FOLDER] [--limit SECONDS]

  --quick           a selection of captures, and no measurements: benchmarks only show that they work
  --out FOLDER      where what programs print and write goes; carve-results in the current folder unless told
  --limit SECONDS   how long a program may run, 1800 unless told; one that takes longer is ended, and has failed

exit codes: 0 all passed, 1 something failed, 2 wrong usage or no folder to write to, 3 nothing was run: no GPU, or an old C library,
130 ended by Ctrl-C or another signal"

quick= out=carve-results limit=1800
while [ $# -gt 0 ]; do
    case "$1" in
    --quick) quick=1 ;;
    --out | --limit)
        [ $# -gt 1 ] && [ -n "$2" ] || { echo "$1 takes a value"; echo "$usage"; exit 2; }
        case "$1" in --out) out=$2 ;; *) limit=$2 ;; esac
        shift
        ;;
    --help) echo "$usage"; exit 0 ;;
    *) echo "unknown option $1"; echo "$usage"; exit 2 ;;
    esac
    shift
done
case "$limit" in
*[!0-9]* | 0*) echo "--limit takes a number of seconds, not $limit"; exit 2 ;;
esac
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2

# The programs were linked against this version of the C library; an older one can't start them.
needed=$(cat "$here/glibc")
version=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ -z "$version" ]; then
    echo "these programs need glibc $needed, and this machine has another C library"
    exit 3
fi
oldest=$(printf '%s\n%s\n' "$needed" "$version" | sort -t. -k1,1n -k2,2n | head -n 1)
if [ "$oldest" != "$needed" ]; then
    echo "these programs need glibc $needed or newer, and this machine has $version"
    exit 3
fi
timer=
! command -v timeout >/dev/null 2>&1 || timer="timeout -k 10 $limit"
# One line: the device, or that there is none.
device=$($timer "$here/programs/bench_gpu" --device 2>&1)
case $? in
0) ;;
3) echo "$device"; exit 3 ;;
*) echo "the device does not answer, which is no reason to stop: $device" ;;
esac

mkdir -p -- "$out" 2>/dev/null && out=$(CDPATH='' cd -- "$out" && pwd) && TMPDIR=$(mktemp -d "$out/tmp.XXXXXX" 2>/dev/null) ||
    { echo "can't write to $out; name a folder with --out"; exit 2; }
export TMPDIR CRITERION_HOME="$out/criterion"
trap 'rm -rf "$TMPDIR"' EXIT
# What programs leave behind lands there, too.
cd "$out" || exit 2
: >failures.txt
echo "$device"
date
echo "what programs print and write is in $out"
[ -n "$timer" ] || echo "programs may run without a limit: timeout is not installed"

passed=0
failed=0
lost() {
    echo "FAILED: $1" | tee -a failures.txt
}
# How a program ended that had to end with code 0.
ending() {
    if [ "$1" -eq 124 ] && [ -n "$timer" ]; then
        echo "was ended after $limit s"
    elif [ "$1" -eq 137 ] && [ -n "$timer" ] && [ "$took" -ge "$limit" ]; then
        echo "was killed after $limit s: it did not end when it was told to"
    elif [ "$1" -eq 137 ]; then
        echo "was killed by signal 9, as by a system that is out of memory"
    elif [ "$1" -gt 128 ] && [ "$1" -lt 193 ]; then
        echo "was ended by signal $(($1 - 128))"
    else
        echo "ended with code $1"
    fi
}
# run NAME COMMAND...: what it prints is shown at its end, and kept. A signal reaches the shell alone, which waits and ends the program.
child=
run() {
    log=$(echo "$1" | tr ' /' '__').txt
    shift
    began=$(date +%s)
    # shellcheck disable=SC2086
    $timer "$@" >"$log" 2>&1 </dev/null &
    child=$!
    # The shell may have a word of its own about who was killed.
    wait "$child" 2>/dev/null
    code=$?
    child=
    took=$(($(date +%s) - began))
    cat "$log"
    # What died may have left a line open.
    [ -z "$(tail -c 1 "$log")" ] || echo
}
stop() {
    trap '' INT TERM HUP
    [ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null
    echo "stopped: $passed passed, $failed failed until then, and the rest was not run"
    exit 130
}
trap stop INT TERM HUP

# ready PROGRAM: where it can be run from. Tests and benchmarks are packed, to be small.
ready() {
    path=$here/$1
    [ -e "$path.gz" ] || return 0
    path=$TMPDIR/$1
    [ -x "$path" ] || { mkdir -p "${path%/*}" && gzip -dc "$here/$1.gz" >"$path" && chmod +x "$path"; }
}

# Lines "PROGRAM|ARGUMENTS|ARGUMENTS WITH --quick"; without the last part, not run then.
total=$(grep -c . "$here/list")
turn=0
while IFS='|' read -r program full short; do
    turn=$((turn + 1))
    arguments=$full
    if [ -n "$quick" ]; then
        [ -n "$short" ] || { echo "[$turn/$total] not run with --quick: $program"; continue; }
        arguments=$short
    fi
    [ "$arguments" != - ] || arguments=
    case "$program" in
    *-count)
        command -v valgrind >/dev/null 2>&1 || { echo "[$turn/$total] not run, since valgrind is not installed: $program"; continue; }
        ;;
    esac
    echo "[$turn/$total] $program $arguments"
    if ! ready "$program"; then
        lost "$program can't be unpacked"
        failed=$((failed + 1))
        continue
    fi
    case "$program" in
    programs/bench_calls)
        # shellcheck disable=SC2086
        run "$program" env LD_LIBRARY_PATH="$here/null" CARVE_SIM_NULL=1 "$path" $arguments
        ;;
    *)
        # shellcheck disable=SC2086
        run "$program" "$path" $arguments
        ;;
    esac
    # The totals of the harness, such as "test result: ok. 5 passed; 0 failed; ..."
    result=$(sed -n 's/^test result: [A-Za-z]*\. \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log" | tail -n 1)
    case "$program" in
    tests/* | programs/test_capture)
        sed -n "s|^test \\(.*\\) \\.\\.\\. FAILED.*|FAILED: $program: \\1|p" "$log" | tee -a failures.txt
        if [ -z "$result" ]; then
            # It did not get to its end: in the test whose line has none.
            within=$(grep '^test .* \.\.\. ' "$log" | grep -v -e ' ok$' -e ' FAILED$' -e ' \.\.\. ignored' |
                sed -n 's/^test \([^ ]*\) .*/, in \1/p' | tail -n 1)
            lost "$program $(ending "$code")$within"
            result="$(grep -c '^test .* \.\.\. ok$' "$log") $(($(grep -c '^test .* \.\.\. FAILED' "$log") + 1))"
        fi
        ;;
    *)
        # A program that is no test reports by its exit code alone.
        result="1 0"
        ;;
    esac
    if [ "$code" -ne 0 ] && [ "${result#* }" -eq 0 ]; then
        case "$program" in
        tests/* | programs/test_capture) result="${result% *} 1" && lost "$program $(ending "$code") after its tests" ;;
        *) result="0 1" && lost "$program $(ending "$code")" ;;
        esac
    fi
    [ "$program" != programs/test_capture ] || [ "${result#* }" -eq 0 ] || lost "$program: ${result#* } captures"
    passed=$((passed + ${result% *}))
    failed=$((failed + ${result#* }))
done <"$here/list"

# What NVIDIA's checker finds in the suite and in the kernels, where it is installed. The suite makes calls that have to be refused, so
# those are no finding.
checker=
for place in "$(command -v compute-sanitizer 2>/dev/null)" "${CUDA_HOME:-}/bin/compute-sanitizer" "${CUDA_PATH:-}/bin/compute-sanitizer" \
    /usr/local/cuda/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer; do
    [ -n "$checker" ] || [ ! -x "$place" ] || checker=$place
done
for tool in memcheck synccheck; do
    if [ -n "$quick" ]; then
        echo "not run with --quick: compute-sanitizer --tool $tool"
        continue
    fi
    if [ -z "$checker" ]; then
        echo "not run: compute-sanitizer --tool $tool, which is not installed"
        continue
    fi
    options=
    if [ "$tool" = memcheck ]; then
        options="--report-api-errors no"
        # From CUDA 12 on: memory that is used before it is allocated, or after it is freed, in the order of streams.
        ! "$checker" --help 2>&1 | grep -q -e --track-stream-ordered-races || options="$options --track-stream-ordered-races all"
    fi
    for program in tests/hardware tests/kernels; do
        [ -e "$here/$program" ] || [ -e "$here/$program.gz" ] || continue
        ready "$program" || continue
        echo "compute-sanitizer --tool $tool $options $program"
        # shellcheck disable=SC2086
        run "$tool $program" "$checker" --tool "$tool" $options --error-exitcode 9 "$path" --test-threads=1
        if [ "$code" -eq 0 ]; then
            passed=$((passed + 1))
        else
            lost "compute-sanitizer --tool $tool $program $(ending "$code")"
            failed=$((failed + 1))
        fi
    done
done
if [ -s failures.txt ]; then
    echo
    cat failures.txt
fi
echo "$passed passed, $failed failed" | tee summary.txt
[ "$failed" -eq 0 ]
