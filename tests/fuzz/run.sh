#!/usr/bin/env bash
# Fuzzes the readers: builds the targets with clang, libFuzzer and sanitizers, and runs each of them.
#
#   tests/fuzz/run.sh                    60 seconds a target
#   tests/fuzz/run.sh 10s [TARGET...]    10 seconds a target
#   tests/fuzz/run.sh 5000 [TARGET...]   5,000 inputs a target
#
# The build goes to build-fuzz/ (BUILD_DIR names another folder); there, corpus/TARGET grows from run to run, log/TARGET.log
# has libFuzzer's own words, and findings/TARGET- holds what broke a reader: fix it, and keep the file as
# tests/fuzz/corpus/TARGET/finding-WHAT.  SEED=N repeats a run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=${BUILD_DIR:-$source/build-fuzz}
amount=${1:-60s}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(safetensors checkpoint config sweep cifar archive png jpeg runlog curves)
case $amount in
  *s) limit=-max_total_time=${amount%s} ;;
  *) limit=-runs=$amount ;;
esac

if [ ! -f "$build/build.ninja" ]; then
  CC=clang meson setup "$build" "$source" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
    -Dbuildtype=debugoptimized >/dev/null ||
    { echo "needs: apt-get install clang libclang-rt-14-dev libomp-dev" >&2 && exit 1; }
fi
ninja -C "$build" -n fuzz | grep -q 'no work to do' || ninja -C "$build" --quiet fuzz
mkdir -p "$build/corpus" "$build/findings" "$build/log"

# -timeout is by the clock, for a reader that waits for something; the targets stop one that works too long (support.c).
# No helper threads: one input, one thread.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1
failed=0
for target in "${targets[@]}"; do
  most=16384
  case $target in
    checkpoint) most=32768 ;;
    png | jpeg | runlog | curves | config | sweep) most=4096 ;;
  esac
  options=("$limit" "-seed=${SEED:-0}" "-max_len=$most" -timeout=600 -rss_limit_mb=2048 -malloc_limit_mb=1024
    -detect_leaks=1 -print_final_stats=1 "-artifact_prefix=$build/findings/$target-")
  [ ! -f "$here/dict/$target.dict" ] || options+=("-dict=$here/dict/$target.dict")
  grown=$build/corpus/$target
  mkdir -p "$grown"
  log=$build/log/$target.log
  status=0
  "$build/tests/fuzz/fuzz_$target" "${options[@]}" "$grown" "$here/corpus/$target" </dev/null >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  if [ "$status" = 0 ]; then
    echo "$target: $runs inputs, nothing found"
  else
    echo "$target: FOUND, see $log and $build/findings/$target-*" >&2
    failed=1
  fi
done
exit $failed
