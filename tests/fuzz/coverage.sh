#!/usr/bin/env bash
# Which lines and branches of the readers the inputs reach, those of the repository and those that run.sh has found since:
#
#   tests/fuzz/coverage.sh           a table a file
#   tests/fuzz/coverage.sh FILE      the lines of train/FILE with their counts, e.g. archive.c
set -euo pipefail
export LLVM_PROFILE_FILE=/dev/null
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=${BUILD_DIR:-$source/build-coverage}
grown=$source/build-fuzz/corpus
readers=(safetensors.c safetensors_read.c checkpoint.c checkpoint_metadata.c loaded.c config.c config_yaml.c config_value.c
  config_check.c config_print.c sweep.c sweep_axes.c sweep_cells.c dataset.c dataset_cifar.c archive.c image.c image_png.c image_jpeg.c image_resize.c
  runlog_cut.c report_curves.c text.c)
targets=(safetensors checkpoint config sweep cifar archive png jpeg runlog curves)

flags="-fprofile-instr-generate -fcoverage-mapping -Wno-pass-failed"
[ -f "$build/build.ninja" ] ||
  CC=clang meson setup "$build" "$source" -Dbuildtype=debug -Dc_args="$flags" -Dc_link_args="$flags" >/dev/null
programs=("${targets[@]/#/$build/tests/fuzz/replay_}")
ninja -C "$build" "${targets[@]/#/tests/fuzz/replay_}" >/dev/null
objects=()
rm -f "$build"/*.profraw
for i in "${!targets[@]}"; do
  inputs=("$here/corpus/${targets[i]}")
  [ ! -d "$grown/${targets[i]}" ] || inputs+=("$grown/${targets[i]}")
  OMP_NUM_THREADS=1 LLVM_PROFILE_FILE=$build/${targets[i]}.profraw "${programs[i]}" "${inputs[@]}" >/dev/null
  objects+=(-object "${programs[i]}")
done
llvm-profdata merge -sparse "$build"/*.profraw -o "$build/all.profdata"
# llvm-cov's own choice of files wants names just as the compiler was given them.
if [ $# -gt 0 ]; then
  llvm-cov show "${programs[0]}" "${objects[@]}" -instr-profile="$build/all.profdata" |
    awk -v file="/train/$1:" '/^\// {wanted = index($0, file) > 0} wanted'
else
  llvm-cov report "${programs[0]}" "${objects[@]}" -instr-profile="$build/all.profdata" |
    awk -v readers="${readers[*]}" '
      BEGIN {split(readers, list, " "); for (i in list) wanted[list[i]]; print "file lines missed covered branches missed covered"}
      {name = $1; sub(".*/", "", name)}
      name in wanted && $1 ~ /train\// {print name, $(NF-5), $(NF-4), $(NF-3), $(NF-2), $(NF-1), $NF}' |
    column -t
fi
