#!/usr/bin/env bash
# The study of docs/results.md: relu and mirror, three seeds each, mirrorla and its PyTorch twin with the same recipe.
#
#   bench/study.sh DATA_DIR OUT_DIR [mirrorla|twin]
#
# DATA_DIR holds CIFAR-10's binary files.  Results come as OUT_DIR/{mirrorla,twin}_{relu,mirror}_{0,1,2}.jsonl, one line an
# epoch; finished ones are left alone, so it may be called again.  About 35 minutes (mirrorla) and 75 (PyTorch) on two quiet cores.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
data=$1 out=$2 which=${3:-both}
mkdir -p "$out"
for seed in 0 1 2; do
  for kind in relu mirror; do
    if [ "$which" != twin ] && [ ! -e "$out/mirrorla_${kind}_$seed.jsonl" ]; then
      run=$out/runs/${kind}_$seed
      resume=()
      if [ -e "$run/log.jsonl" ]; then resume=(--resume); fi
      "$here/run" train "$here/configs/cifar10/study_$kind.yaml" --set "data.path=$data" --set "train.seed=$seed" \
        --out "$run" "${resume[@]}"
      grep '"event":"epoch"' "$run/log.jsonl" >"$out/mirrorla_${kind}_$seed.jsonl"
    fi
    if [ "$which" != mirrorla ] && [ ! -e "$out/twin_${kind}_$seed.jsonl" ]; then
      python3 "$here/bench/train_twin.py" "$data" --kind "$kind" --seed "$seed" --threads 2 >"$out/twin_${kind}_$seed.part"
      mv "$out/twin_${kind}_$seed.part" "$out/twin_${kind}_$seed.jsonl"
    fi
  done
done
