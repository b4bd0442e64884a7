#!/usr/bin/env bash
# PyTorch in one environment, JAX in another, the comparison in a third that has neither: models that are run,
# and traces that were recorded. NEWEST_PYTHON, of 3.12 or later, has JAX alone and thereby the newest, which is small
# without PyTorch. Usage: environments.sh FOLDER (to make the environments in)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
mkdir -p "$folder"
cd "$folder"
folder=$PWD
oldest=${PYTHON:-python3}
newest=${NEWEST_PYTHON:-$oldest}
python_of() { if [ "$1" = jax ]; then echo "$newest"; else echo "$oldest"; fi; }
# make one of the Python for that framework, unless it is there
environment() {
    local python
    python=$(python_of "$2")
    if [ -d "$1" ] && [ "$("$1/bin/python" --version)" = "$("$python" --version)" ]; then return; fi
    rm -rf "$1"
    "$python" -m venv "$1"
}
for name in torch jax neither; do
    place=with-$name
    environment "$place" "$name"
    extra=$([ "$name" = neither ] || echo "[$name]")
    "$place/bin/python" -m pip install --quiet --constraint "$here/constraints.txt" "$here$extra"
done
with-neither/bin/python - <<'END'
import importlib.util

assert not any(importlib.util.find_spec(name) for name in ("torch", "jax"))
END

preset=mnist_exercise
for twin in torch jax; do
    rm -rf "$twin.trace"
    "with-$twin/bin/python" - "$twin:$preset" "$twin.trace" <<'END'
import sys

import numpy as np

from parity import record
from parity.verifier.programs.build import BuildOrder, build_from

model, images = build_from(BuildOrder(name=sys.argv[1]))
model.eval()
images = images.astype(np.float64)
if sys.argv[1].startswith("torch"):
    import torch

    logits = model(torch.from_numpy(images)).logits.detach().numpy()
else:
    import jax

    jax.config.update("jax_enable_x64", True)
    logits = np.asarray(model(images).logits)
with record(sys.argv[2]) as recording, recording.step():
    recording.log("forward", {"logits": logits}, port="out")
END
done
# each trains, stops, resumes and exports where the other is not installed
for name in torch jax; do
    place=train-with-$name
    environment "$place" "$name"
    "$place/bin/python" -m pip install --quiet --constraint "$here/constraints.txt" "$here[$name,train]"
    "$place/bin/python" - "$([ "$name" = torch ] && echo jax || echo torch)" <<'END'
import importlib.util
import sys

assert not any(importlib.util.find_spec(name) for name in (sys.argv[1], "grain"))
END
    rm -rf "trained-$name"
    "$place/bin/python" "$here/tests/support/train_alone.py" "$name" "trained-$name"
done

# what depends on the version of JAX: flags, loops and meshes in jaxprs
with-jax/bin/python -m pip install --quiet --constraint "$here/constraints.txt" pytest pytest-timeout
(cd "$here" && "$folder/with-jax/bin/python" -m pytest -p no:cacheprovider tests/parity/measure/test_versions.py)
with-jax/bin/python -c 'import sys, jax, flax; print(sys.version.split()[0], jax.__version__, flax.__version__)'

with-neither/bin/parity diff torch.trace jax.trace
with-neither/bin/parity diff "torch:$preset" "jax:$preset" --python-a with-torch/bin/python --python-b with-jax/bin/python
with-neither/bin/parity diff "torch:$preset" "jax:mnist_conv_vit" --python-a with-torch/bin/python \
    --python-b with-jax/bin/python && exit 1 || [ $? = 1 ] # another architecture
echo "environments: ok"
