#!/usr/bin/env bash
# The newest of everything, candidates and development versions too, in an environment of its own: what breaks is
# said, and stops nothing. Usage: tomorrow.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
place=$(cd "$1" && pwd)/tomorrow
python=$place/bin/python
broken=0
# run a command, and say whether it broke
report() {
    local said=$1
    shift
    if "$@" >"$place/said.txt" 2>&1; then
        echo "ok      $said"
    else
        broken=$((broken + 1))
        echo "breaks  $said: $(grep -vE "^ *$" "$place/said.txt" | tail -n 1)"
    fi
}

rm -rf "$place"
"$("$here/tests/find_python.sh" "${PYTHON:-python3}")" -m venv "$place"
report "install uv" "$python" -m pip install --quiet uv
report "install" "$place/bin/uv" pip install --quiet --python "$python" --prerelease allow --upgrade \
    --editable "$here[jax,torch,train]" pytest pytest-timeout pytest-xdist hypothesis
cd "$here"
export JAX_COMPILATION_CACHE_DIR=$place/compiled
report "parity check" "$python" -m parity check digits mnist_exercise
report "parity check-steps" "$python" -m parity check-steps digits --steps 5 --dtype float64
report "training over 8 devices" "$python" -m pytest -q tests/vit_jax/test_train_mesh.py
while read -r file; do
    report "$file" "$python" -m pytest -q -m "versions and not exhaustive" "$file"
done < <(grep -rlE "mark\.versions\b" tests --include="test_*.py" | sort)
"$place/bin/uv" pip list --quiet --python "$python" | grep -E "^(jax|jaxlib|flax|optax|orbax-checkpoint|torch|numpy) "
echo "tomorrow: $broken broken"
