"""Runs the pairs and holds them to their kind: clean ones agree, faults differ.

    python check.py [ID or part of it ...]     float64, then float32 for the clean ones
"""
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent


# Libraries that compute parts (softmax, batch norm, erf, schedules) in float32 whatever the inputs are.
FLOAT32_INSIDE = {"nnx-gelu", "nnx-token-order", "keras-default-epsilon", "keras-pool", "eqx-bias-forgotten", "lightning-nesterov",
                  "cosine-total", "timm-vs-nnx", "keras-vit", "hf-eqx", "lightning-clean", "cosine-control", "sequential-control",
                  "keras-clipnorm-control", "keras-rescale-control", "adagrad-control", "stem-keras-lax", "keras-pool-control", "conv-same-control"}

# torch's clip_grad_norm_ adds 1e-6 to the norm, optax does not.
CLIP_EPSILON = {"clip-control"}


def side(spec):
    file, name = spec.split(":")
    sys.path.insert(0, str(HERE))
    if file[:-3] in sys.modules:
        module = sys.modules[file[:-3]]
    else:
        s = importlib.util.spec_from_file_location(file[:-3], HERE / file)
        module = importlib.util.module_from_spec(s)
        sys.modules[file[:-3]] = module
        s.loader.exec_module(module)
    fn, inputs = getattr(module, name)()
    return inputs, fn(*inputs), fn(*inputs)


def leaves(value):
    import numpy as np

    if isinstance(value, dict):
        return [leaf for k in value for leaf in leaves(value[k])]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in leaves(v)]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if hasattr(value, "to_tuple"):
        return leaves(value.to_tuple())
    if not hasattr(value, "__array__") and not np.isscalar(value):
        import jax

        return [leaf for v in jax.tree.leaves(value) for leaf in leaves(v)]
    return [np.asarray(value)]


def apart(a, b, step):
    """The relative difference of two results; a step's parameters are compared as one sorted list."""
    import numpy as np

    if step:
        parts = [(leaves(a[0]), leaves(b[0])), (leaves(a[1]), leaves(b[1]))]
    else:
        parts = [(leaves(a), leaves(b))]
    worst = 0.0
    for i, (x, y) in enumerate(parts):
        if not step and [v.shape for v in x] != [v.shape for v in y]:
            raise ValueError(f"shapes differ: {[v.shape for v in x]} {[v.shape for v in y]}")
        x, y = (np.concatenate([np.ravel(v).astype(np.float64) for v in s]) for s in (x, y))
        if x.shape != y.shape:
            raise ValueError(f"sizes differ: {x.shape} {y.shape}")
        if i == 1:
            x, y = np.sort(x), np.sort(y)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("not finite")
        worst = max(worst, np.abs(x - y).max() / np.abs(x).max())
    return worst


def main(words):
    import numpy as np

    double = bool(os.environ.get("PAIRS_FLOAT64"))
    bad = done = 0
    pairs = [p for name in ("pairs.json", "controls.json") for p in json.loads((HERE / name).read_text())]
    for pair in pairs:
        if words and not any(w in pair["id"] for w in words):
            continue
        clean, step = pair["kind"].startswith(("clean", "control")), pair["kind"].endswith("step")
        done += 1
        try:
            (in_a, a, again_a), (in_b, b, again_b) = side(pair["a"]), side(pair["b"])
            far = apart(a, b, step)
            data = lambda inputs: [v for v in inputs if hasattr(v, "shape")]
            same = all(np.array_equal(leaves(x)[0], leaves(y)[0]) for x, y in zip(data(in_a)[::-1], data(in_b)[::-1]))
            wide = all(v.dtype == np.float64 for s in (a, b) for v in leaves(s) if v.dtype.kind == "f")
            if clean:
                good = far < (1e-9 if double and wide and pair["id"] not in FLOAT32_INSIDE | CLIP_EPSILON else 1e-4)
            else:
                good = far > (1e-6 if double else 2e-5)  # single: far above the noise of 1e-6
            good = good and same
            note = f"{far:.2e}" + ("" if same else " inputs differ") + ("" if wide or not double else " (float32)")
            if max(apart(a, again_a, step), apart(b, again_b, step)) > 1e-12:
                good, note = False, note + " not repeatable"
        except Exception as error:
            good, note = False, f"{type(error).__name__}: {error}"
            if len(words) == 1:
                traceback.print_exc()
        bad += not good
        print(f"{'ok ' if good else 'BAD'} {pair['kind']:10} {pair['id']:34} {note}", flush=True)
    print(f"{done - bad} passed, {bad} failed")
    return bad


if __name__ == "__main__":
    if "--single" in sys.argv:
        sys.argv.remove("--single")
    elif not os.environ.get("PAIRS_FLOAT64"):
        os.environ["PAIRS_FLOAT64"] = "1"
    sys.exit(bool(main(sys.argv[1:])))
