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
    lowest=()
    if [ "$end" = oldest ]; then
        "$python" "$here/tests/support/lowest.py" jax torch >"$place/lowest.txt"
        lowest=(--constraint "$place/lowest.txt")
    fi
    "$python" -m pip install --quiet "${lowest[@]}" --editable "$here[jax,torch]" \
        pytest pytest-timeout pytest-xdist hypothesis
    touch "$place/ready"
fi
"$python" --version
"$python" -m pip list 2>/dev/null | grep -iE "^(jax|jaxlib|flax|optax|torch|numpy|ml.dtypes|pydantic|safetensors|tyro|rich) "
cd "$here"
export JAX_COMPILATION_CACHE_DIR=$here/.cache/jax
"$python" -m parity check digits mnist_exercise
"$python" -m parity check digits --steps 5 --dtype float64
# shellcheck disable=SC2046 # one argument for each file
"$python" -m pytest -n auto -m "versions and not exhaustive" $(grep -rlE "mark\.versions\b" tests --include="test_*.py")
echo "$end: ok"
