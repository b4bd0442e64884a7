"""What bfloat16 costs the gradients on each layout, beside the float64 gradients of the same layout.

    python -m evidence.measurements.layouts                       # eight emulated CPU devices
    python -m evidence.measurements.layouts --topology v5e:2x4    # eight chips; compiled only, by libtpu

A ViT of 6 blocks of width 192 (of one where it is compiled only), 64 images, weights re-drawn. For one
device, for `pmap`, for each mesh, and for each type that the recipe may say gradients are added in
(`reduce_dtype`): the error of a step's gradients in bfloat16, ||g - g64|| / ||g64||, the median over all
tensors, and of all together; in which types, and of how many bytes, the compiled program sums over
devices. Then what it costs to add in bfloat16 one share after the other: links that add in the type they
send do that, CPUs do not.
"""

from __future__ import annotations

import os

from vit_config.errors import first_line

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from parity.measure.redraw import redraw
from vit_config import Recipe, ViTConfig
from vit_jax.compiling import least_effort
from vit_jax.leaves import leaves
from vit_jax.step import make_gradients
from vit_jax.train.hlo import shape_bytes
from vit_jax.train.layout import MeshLayout, make_layout
from vit_jax.train.mesh import BATCH_AXES, make_mesh, parse_mesh
from vit_jax.train.spread import make_shares
from vit_jax.train.topology import get_topology
from vit_jax.weights import abstract_model

CFG = ViTConfig(
    image_size=(64, 48), patch_size=(16, 16), hidden_size=192, depth=6, num_heads=4, num_classes=10
)  # fmt: skip
BATCH = 64
DType = Literal["float64", "bfloat16"]
Reduce = Literal["auto", "float32", "bfloat16", "float64"]
LAYOUTS: dict[str, tuple[Reduce, ...]] = {
    "one device": ("auto",),
    "pmap": ("auto", "bfloat16"),
    **dict.fromkeys(
        ("data=8", "fsdp=8", "data=2,fsdp=4", "data=4,tensor=2", "data=2,fsdp=2,tensor=2"),
        ("auto", "float32", "bfloat16"),
    ),
}
"""And the types to add in; with `pmap`, auto is float32."""
_SUM = re.compile(r"= (\(?\w+\[.*?) (?:all-reduce|reduce-scatter)(?:-start)?\(")
_TYPE = re.compile(r"(\w+)\[[\d,]*\]")


def make_params(dtype: Any, cfg: ViTConfig = CFG) -> dict[str, np.ndarray]:
    """Re-drawn parameters, which hide no fault."""
    return {
        leaf.name: np.asarray(leaf.from_common(redraw(leaf.name, leaf.kind, leaf.shape, 0)), dtype)
        for leaf in leaves(abstract_model(cfg))
    }


def make_batch() -> dict[str, np.ndarray]:
    """Random images and labels."""
    rng = np.random.default_rng(0)
    return {
        "image": rng.standard_normal((BATCH, *CFG.image_size, CFG.in_channels), np.float32),
        "label": rng.integers(0, CFG.num_classes, BATCH, np.int32),
    }


class Step(NamedTuple):
    """The gradients of a batch, over some devices."""

    function: Any
    given: tuple[Any, ...]
    unpack: Any
    """Function that makes whole gradients of those that the devices hold."""


def make_step(
    how: str, dtype: DType, reduce: Reduce, devices: Sequence[Any], cfg: ViTConfig = CFG
) -> Step:
    """A layout's program."""
    recipe = Recipe(dtype=dtype, batch_size=BATCH, reduce_dtype=reduce)
    params, batch = make_params(np.float64 if dtype == "float64" else np.float32, cfg), make_batch()
    if how == "pmap":
        gradients = make_gradients(cfg, recipe, axis_name="i")
        batch = {name: x.reshape(8, -1, *x.shape[1:]) for name, x in batch.items()}
        function = jax.pmap(gradients, axis_name="i", in_axes=(None, 0, None), devices=devices)
        first = itemgetter(0)
        return Step(
            function, (params, batch, np.int32(0)), lambda tree: {n: first(x) for n, x in tree.items()}
        )
    mesh, used = ("data=1", devices[:1]) if how == "one device" else (how, devices)
    layout: MeshLayout = make_layout(cfg, make_mesh(parse_mesh(mesh, len(used)), used))
    params = layout.pack(params)
    places = layout.of(params)
    split, whole = (NamedSharding(layout.mesh, spec) for spec in (P(BATCH_AXES), P()))
    gradients = make_gradients(cfg, recipe, gather=layout.gather, shares=make_shares(layout, recipe))
    function = jax.jit(gradients, in_shardings=(places, split, whole), out_shardings=(places, None))
    return Step(function, (params, batch, np.int32(0)), layout.unpack)


def sums(text: str) -> str:
    """The types of sums over devices in a compiled program, and the bytes of their results."""
    nbytes: Counter[str] = Counter()
    for shapes in _SUM.findall(text):
        for kind in set(_TYPE.findall(shapes)):
            nbytes[kind] += sum(
                shape_bytes(one[0]) for one in re.finditer(rf"\b{kind}\[[\d,]*\]", shapes)
            )
    return ", ".join(f"{kind} {size / 2**20:.2f} MiB" for kind, size in sorted(nbytes.items())) or "none"


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
    return {name: np.asarray(x).astype(np.float64) for name, x in total.items()}


def say(how: str, gradients: dict[str, np.ndarray], exact: dict[str, np.ndarray], sums: str) -> None:
    """Print a row."""
    errors = [
        np.linalg.norm(gradients[name] - ref) / np.linalg.norm(ref)
        for name, ref in exact.items()
        if not name.endswith("qkv.bias")  # that of the keys is noise
    ]
    error = np.sqrt(sum(np.sum((gradients[name] - ref) ** 2) for name, ref in exact.items()))
    size = np.sqrt(sum(np.sum(ref**2) for ref in exact.values()))
    print(f"{how} {np.median(errors):8.2e} {error / size:9.2e}  {sums}", flush=True)


def measure() -> None:
    """All layouts on emulated devices."""
    print(f"{'layout':<24} {'added in':<9} {'median':>8} {'together':>9}  sums over devices")
    exact: dict[str, np.ndarray] = {}
    for how, reductions in LAYOUTS.items():
        with jax.enable_x64(True):
            step = make_step(how, "float64", "auto", jax.devices())
            exact = run(step)
        for reduce in reductions:
            if reduce == "bfloat16" and "tensor" in how:
                continue  # XLA cannot compile it for CPUs
            step = make_step(how, "bfloat16", reduce, jax.devices())
            compiled = step.function.lower(*step.given).compile()
            say(f"{how:<24} {reduce:<9}", run(step), exact, sums(compiled.as_text() or ""))
    for count in (8, 32):
        words = f"{f'{count} shares':<24} {'bfloat16':<9}"
        say(words, added(count), exact, f"{count} in bfloat16, one after the other")


def run(step: Step) -> dict[str, np.ndarray]:
    """The gradients of one step, by name."""
    return {name: np.asarray(x) for name, x in step.unpack(dict(step.function(*step.given)[0])).items()}


def compile_only(topology: str) -> None:
    """In which types a program for TPU adds."""
    devices = get_topology(topology).devices
    print(f"{'layout':<24} {'added in':<9} sums over devices")
    for how, reductions in LAYOUTS.items():
        for reduce in reductions if how not in ("one device", "pmap") else ():
            step = make_step(how, "bfloat16", reduce, devices, CFG.replace(depth=1))
            given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), step.given)
            compiled = step.function.lower(*given).compile(least_effort())
            print(f"{how:<24} {reduce:<9} {sums(compiled.as_text() or '')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--topology", help="a slice to compile for, such as v5e:2x4; nothing is run")
    options = parser.parse_args()
    if options.topology:
        compile_only(options.topology)
    else:
        measure()


if __name__ == "__main__":
    main()
