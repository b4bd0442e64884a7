"""What bfloat16 costs the gradients on each layout, beside the float64 gradients of the same layout.

    python tools/measure_layouts.py

Eight emulated CPU devices, a ViT of 6 blocks of width 192, 64 images, weights re-drawn. For each mesh,
for `pmap`, and for one device: the error of a step's gradients in bfloat16, ||g - g64|| / ||g64||, the
median over all tensors, and of all together; and in which types the compiled program sums over devices.
"""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import re
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from parity.measure.redraw import redraw
from vit_config import Recipe, ViTConfig
from vit_jax.leaves import leaves
from vit_jax.step import make_gradients
from vit_jax.train.layout import make_layout
from vit_jax.train.mesh import BATCH_AXES, make_mesh, parse_mesh
from vit_jax.weights import abstract_model

CFG = ViTConfig(
    image_size=(64, 48), patch_size=(16, 16), hidden_size=192, depth=6, num_heads=4, num_classes=10
)  # fmt: skip
BATCH = 64
LAYOUTS = (
    "one device",
    "pmap",
    "data=8",
    "fsdp=8",
    "data=2,fsdp=4",
    "data=4,tensor=2",
    "data=2,fsdp=2,tensor=2",
)
_SUM = re.compile(r"= \(?(\w+)\[.*? (?:all-reduce|reduce-scatter)(?:-start)?\(")


def make_params(dtype: Any) -> dict[str, np.ndarray]:
    """Re-drawn parameters, which hide no fault."""
    return {
        leaf.name: np.asarray(leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0)), dtype)
        for leaf in leaves(abstract_model(CFG))
    }


def make_batch() -> dict[str, np.ndarray]:
    """Random images and labels."""
    rng = np.random.default_rng(0)
    return {
        "image": rng.standard_normal((BATCH, *CFG.image_size, CFG.in_channels), np.float32),
        "label": rng.integers(0, CFG.num_classes, BATCH, np.int32),
    }


def run(how: str, dtype: Any) -> tuple[dict[str, np.ndarray], str]:
    """The gradients of one step, and the types of sums over devices with how many there are."""
    recipe = Recipe(dtype=dtype, batch_size=BATCH)
    params, batch = make_params(np.float64 if dtype == "float64" else np.float32), make_batch()
    if how == "pmap":
        step = jax.pmap(
            make_gradients(CFG, recipe, axis_name="i"), axis_name="i", in_axes=(None, 0, None)
        )
        batch = {name: x.reshape(8, -1, *x.shape[1:]) for name, x in batch.items()}
        given = params, batch, np.int32(0)
        first, unpack = itemgetter(0), dict
    else:
        mesh = "data=1" if how == "one device" else how
        devices = jax.devices()[: 1 if how == "one device" else 8]
        layout = make_layout(CFG, make_mesh(parse_mesh(mesh, len(devices)), devices))
        params = layout.pack(params)
        places = layout.of(params)
        split = NamedSharding(layout.mesh, P(BATCH_AXES))
        whole = NamedSharding(layout.mesh, P())
        step = jax.jit(
            make_gradients(CFG, recipe, gather=layout.gather),
            in_shardings=(places, split, whole),
            out_shardings=(places, None),
        )
        given, first, unpack = (params, batch, np.int32(0)), np.asarray, layout.unpack
    compiled = step.lower(*given).compile()
    kinds = _SUM.findall(compiled.as_text() or "")
    sums = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "none"
    grads = step(*given)[0]
    return {name: np.asarray(first(x)) for name, x in unpack(dict(grads)).items()}, sums


def added(count: int) -> dict[str, np.ndarray]:
    """Gradients in bfloat16 of so many shares of the batch, added one after the other in bfloat16, as
    links that add in the type they send do."""
    recipe, images = Recipe(dtype="bfloat16", batch_size=BATCH // count), make_batch()
    step = jax.jit(make_gradients(CFG, recipe))
    params, total = make_params(np.float32), {}
    for share in range(count):
        rows = slice(share * BATCH // count, (share + 1) * BATCH // count)
        batch = {name: x[rows] for name, x in images.items()}
        for name, x in step(params, batch, np.int32(0))[0].items():
            part = np.asarray(x).astype(jnp.bfloat16) / jnp.bfloat16(count)
            total[name] = total[name] + part if name in total else part
    return {name: x.astype(np.float64) for name, x in total.items()}


def say(how: str, found: dict[str, np.ndarray], exact: dict[str, np.ndarray], sums: str) -> None:
    """Print a row."""
    errors = [
        np.linalg.norm(found[name] - ref) / np.linalg.norm(ref)
        for name, ref in exact.items()
        if not name.endswith("qkv.bias")  # that of the keys is noise
    ]
    error = np.sqrt(sum(np.sum((found[name] - ref) ** 2) for name, ref in exact.items()))
    size = np.sqrt(sum(np.sum(ref**2) for ref in exact.values()))
    print(f"{how:<24} {np.median(errors):8.2e} {error / size:9.2e}  {sums}", flush=True)


def main() -> None:
    print(f"{'layout':<24} {'median':>8} {'together':>9}  sums over devices")
    exact = {}
    for how in LAYOUTS:
        with jax.enable_x64(True):
            exact, _ = run(how, "float64")
        found, sums = run(how, "bfloat16")
        say(how, found, exact, sums)
    for count in (8, 32):
        say(f"{count} shares", added(count), exact, f"{count} in bfloat16, one after the other")


if __name__ == "__main__":
    main()
