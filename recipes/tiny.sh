#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a toy pair: side by side on two GPUs, one after the other on one; run in the root of a
# checkout that is built. DATA: folder of the request files (train_*.jsonl.gz to train
# on, eval_*.jsonl.gz to evaluate on). OUT: folder that gets target.tgz and sidecar.tgz, which
# belong into python/ooospec/shipped as tiny-target and tiny-sidecar, the target's evaluation, and
# logs.
#
# Others: WORK (folder for what is under way; a run that was ended goes on from there), PYTHON,
# SYNTH (made-up requests), STRANGE (share of their names and values that are strange words),
# UNCLEAR, CUTS and TEXT_WEIGHT (of the target: share of calls that nobody can tell; ways to cut
# words; weight of a prompt's tokens), PROCESSES (that prepare examples of each), TARGET_STEPS and
# SIDECAR_STEPS (of the optimizer).
set -uo pipefail
: "${DATA:?folder of the request files}" "${OUT:?folder for the results}"
export PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
PYTHON=${PYTHON:-python3}
WORK=${WORK:-$(mktemp -d)}
NUM_GPUS=$(nvidia-smi -L | wc -l)
mkdir -p "$OUT" "$WORK"

train_files=() eval_files=()
for file in "$DATA"/train_*.jsonl.gz; do train_files+=(--requests "$file"); done
for file in "$DATA"/eval_*.jsonl.gz; do eval_files+=(--requests "$file"); done

make_one() {  # part, GPU, steps, other options
  export CUDA_VISIBLE_DEVICES=$2
  "$PYTHON" -m ooospec.tiny train "$1" --out "$WORK/$1" "${train_files[@]}" \
    --synth "${SYNTH:-300000}" --strange "${STRANGE:-0.8}" --processes "${PROCESSES:-14}" --steps "$3" \
    "${@:4}" || return
  tar -czf "$OUT/$1.tgz" -C "$WORK/$1" .
  if [ "$1" = target ]; then
    "$PYTHON" -m ooospec.tiny evaluate "$WORK/target" --out "$OUT/target-evaluation.json" \
      --held-out 400 "${eval_files[@]}" --limit 200 --rows 200
  fi
}

make_target() {
  make_one target 0 "${TARGET_STEPS:-20000}" --unclear "${UNCLEAR:-0.12}" --cuts "${CUTS:-16}" \
    --text-weight "${TEXT_WEIGHT:-0.01}" > "$OUT/target.log" 2>&1
}
make_sidecar() {
  make_one sidecar $((NUM_GPUS > 1)) "${SIDECAR_STEPS:-14000}" > "$OUT/sidecar.log" 2>&1
}

if [ "$NUM_GPUS" -gt 1 ]; then
  make_target & target=$!
  make_sidecar; sidecar_code=$?
  wait $target; target_code=$?
else  # side by side on one GPU they take longer than in turn
  make_target; target_code=$?
  make_sidecar; sidecar_code=$?
fi
tail -n 6 "$OUT/target.log" "$OUT/sidecar.log"
echo "target: exit $target_code; sidecar: exit $sidecar_code"
exit $((target_code || sidecar_code))
