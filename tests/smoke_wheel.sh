#!/usr/bin/env bash
# Install a wheel with all its extras in a clean environment, and use it from another folder.
set -euo pipefail
wheel=$(realpath "$1")
constraints=$(realpath "$(dirname "$0")/../constraints.txt")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if unzip -Z1 "$wheel" | grep -E "^(tests|evidence|tools|docs)/"; then
    echo "the wheel has files of the checkout" >&2
    exit 1
fi
cd "$folder"
"${PYTHON:-python3}" -m venv clean
clean/bin/pip install --quiet --constraint "$constraints" "$wheel[all]"
clean/bin/parity --help
clean/bin/parity check mnist_exercise
clean/bin/parity train --recipe.epochs 2 --recipe.warmup-epochs 0 --data-dir data --run-dir run
clean/bin/parity plot run
status=0
clean/bin/parity check no_such_preset || status=$?
[ "$status" = 2 ]
clean/bin/python -c "
import parity, vit_config
assert 'clean' in vit_config.__file__, vit_config.__file__
print(parity.load('run/weights.safetensors', framework='torch').config.depth, 'blocks')
"
echo "the wheel works"
