#!/bin/sh
# What a machine with one GPU says of this project, in five minutes: parity, devices, speed, memory, one sharded step.
#
#     evidence/gpu.sh [FOLDER]              # in a fresh environment below FOLDER, default: build/gpu
#     PYTHON=python3.12 evidence/gpu.sh     # of another Python
#     READY=1 evidence/gpu.sh               # in the environment that runs `python`, nothing installed
#     DEVICE=cpu evidence/gpu.sh            # the rehearsal: tiny models, on the CPU
#
# FOLDER/*.json hold the results; FOLDER/gpu.md is the page that is made from them.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/gpu}
began=$(date +%s)
mkdir -p "$out"
if [ -z "${READY:-}" ]; then
    "${PYTHON:-python3}" -m venv "$out/venv"
    python=$out/venv/bin/python
    # CUDA's own libraries come with torch and jax[cuda13], 4 GB; what does not come in two minutes is said
    jax="jax[cuda13]"
    [ "${DEVICE:-gpu}" = gpu ] || jax=jax
    timeout 120 "$python" -m pip install --quiet torch "$jax" --editable ".[all,peers]" || {
        echo "gpu.sh: the packages were not installed in 120 s; install them, then READY=1 $0" >&2
        exit 2
    }
else
    python=python
fi
exec "$python" -m evidence.gpu "$out" --device "${DEVICE:-gpu}" --seconds $((300 - $(date +%s) + began))
