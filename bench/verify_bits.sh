#!/usr/bin/env bash
# The same bits for any number of threads, at real size: trains pvt_nano with mirror for 50 steps on CIFAR-10 with 1, 2, 3, 4 and 8
# threads and compares the weights' hash and the log.
#
#   bench/verify_bits.sh DATA_DIR [CONFIG] [STEPS]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
data=$1 config=${2:-$here/configs/cifar10/pvt_nano_mirror.yaml} steps=${3:-50}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "| threads | weights after $steps steps | log.jsonl (CRC-32) |"
echo "| --- | --- | --- |"
for threads in 1 2 3 4 8; do
  hash=$("$here/run" train "$config" --set "data.path=$data" --set "train.max_steps=$steps" --threads "$threads" \
    --out "$work/$threads" 2>/dev/null | sed -n 's/^weights //p')
  log=$(python3 -c 'import sys, zlib; print("%08x" % zlib.crc32(open(sys.argv[1], "rb").read()))' "$work/$threads/log.jsonl")
  echo "| $threads | $hash | $log |"
  first=${first:-$hash $log}
  [ "$hash $log" = "$first" ] || { echo "different bits with $threads threads" >&2; exit 1; }
done
