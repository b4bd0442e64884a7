#!/usr/bin/env bash
# The oldest or the newest frameworks that pyproject.toml admits, in an environment of their own: the twins are
# checked, trained and carried over, and the tests marked `versions` pass. Usage: versions.sh oldest|newest FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
end=$1
folder=$2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
place=$folder/$end
python=$place/bin/python
if [ ! -e "$place/ready" ]; then
    rm -rf "$place"
    "${PYTHON:-python3}" -m venv "$place"
    # uv takes the lowest versions of what pyproject.toml names, which pip cannot; of what those need, the newest.
    # Where it can be reached, UV_TORCH_BACKEND=cpu takes a PyTorch without CUDA, a tenth of the gigabytes.
    "$python" -m pip install --quiet uv
    "$place/bin/uv" pip install --quiet --python "$python" \
        --resolution "$([ "$end" = oldest ] && echo lowest-direct || echo highest)" \
        --editable "$here[jax,torch,train]" "pytest>=9" "pytest-timeout>=2.4" "pytest-xdist>=3.8" "hypothesis>=6.170"
    touch "$place/ready"
fi
"$python" --version
"$place/bin/uv" pip list --quiet --python "$python" |
    grep -E "^(jax|jaxlib|flax|optax|orbax-checkpoint|torch|numpy|ml-dtypes|pydantic|safetensors|tyro|rich) "
cd "$here"
export JAX_COMPILATION_CACHE_DIR=$here/.cache/jax
"$python" -m parity check digits mnist_exercise
"$python" -m parity check-steps digits --steps 5 --dtype float64
# shellcheck disable=SC2046 # one argument for each file
"$python" -m pytest -n auto -m "versions and not exhaustive" $(grep -rlE "mark\.versions\b" tests --include="test_*.py")
echo "$end: ok"
