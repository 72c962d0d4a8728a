#!/usr/bin/env bash
# Instructions of one training step, counted by callgrind: repeats to 1e-5, whatever else the machine does.
#
#   bench/instructions.sh [KIND...]        default: mirror; PROGRAM names a program other than the one built for it
#
# A step of the study model (64 tokens, 4 blocks of 64 dims), 16 generated images, one thread: reading, augmenting, forward,
# backward, clipping, update, log. Two trainings of 2 and of 3 steps are counted, and the difference is a step; it is shown by
# function too, for functions of over 1 %. The program is built for x86-64-v3 (elsewhere: as always) in build-instructions, and
# OpenBLAS is told which kernels to take, so that the count depends on compiler and C library, but not on the processor.
# Needs valgrind, and some minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=$here/build-instructions
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "$(uname -m)" != x86_64 ] || export OPENBLAS_CORETYPE=Haswell cpu=x86-64-v3
export OMP_NUM_THREADS=1 LC_ALL=C
if [ -z "${PROGRAM:-}" ]; then
  [ -f "$build/build.ninja" ] || meson setup "$build" "$here" -Ddebug=true -Dcpu="${cpu:-native}" >&2
  ninja -C "$build" --quiet mirrorla >&2
  PROGRAM=$build/mirrorla
fi

# Counts a training of $2 steps with attention kind $1: "COUNT FUNCTION" lines into $3, the sum as "total".
count() {
  setarch -R valgrind --tool=callgrind --callgrind-out-file="$work/out" "$PROGRAM" train "$here/configs/cifar10/study_$1.yaml" \
    --set data.set=twins --set augment.crop_padding=0 --set augment.flip=0 --set train.batch=16 --set "train.max_steps=$2" \
    --set data.twins.train=160 --set data.twins.test=16 --threads 1 --out "$work/run" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  rm -rf "$work/run"
  callgrind_annotate --threshold=100 --show-percs=no "$work/out" |
    sed -nE 's/^ *([0-9,]+) +PROGRAM TOTALS$/\1 total/p; s/^ *([0-9,]+) +([^ ]*\/)?([^ ]*:[^ ]+)( \[.*)?$/\1 \3/p' | sed "s/???://" | tr -d , >"$3"
}

echo "| attention | instructions a step, millions | function | millions | share |"
echo "| --- | --- | --- | --- | --- |"
for kind in "${@:-mirror}"; do
  count "$kind" 2 "$work/two"
  count "$kind" 3 "$work/three"
  awk -v kind="$kind" '
    FNR == NR { before[$2] += $1; next }
    { after[$2] += $1 }
    END {
      total = after["total"] - before["total"]
      printf "| %s | %.3f | | | |\n", kind, total / 1e6
      for (f in after) {
        own = after[f] - before[f]
        if (f != "total" && own > total / 100) printf "| | | `%s` | %.3f | %.1f %% |\n", f, own / 1e6, 100 * own / total | "sort -t\"|\" -k5,5rn"
      }
    }' "$work/two" "$work/three"
done
