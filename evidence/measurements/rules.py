"""What the derivatives of vit_jax/rules.py, and the last block's tokens, are to a TPU and a GPU.

    PYTHONPATH=.environments/tpu python -m evidence.measurements.rules [--depth 3]

The training step of ViT-B/16, cut to a few blocks, in bfloat16 with 32 images: compiled by libtpu for
one v5e chip, where it is installed (`make tpu`), and lowered for CUDA, which needs neither a GPU nor its
compiler. Once with automatic derivatives and a head that reads the mean of all tokens, once with the
derivatives written out, and once with these and the class token.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

from vit_config.errors import first_line

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax.sharding import SingleDeviceSharding

from evidence.bench.counts import count_operations
from vit_config import Recipe, ViTConfig, preset
from vit_jax.rules import automatic_derivatives
from vit_jax.step import init_state, make_train_step
from vit_jax.train.topology import get_topology

BATCH = 32
RECIPE = Recipe(dtype="bfloat16", batch_size=BATCH)
VARIANTS = {
    "automatic derivatives, mean of all tokens": ("mean", automatic_derivatives),
    "written out, mean of all tokens": ("mean", nullcontext),
    "written out, class token": ("class", nullcontext),
}


def abstract_arguments(cfg: ViTConfig, sharding: Any = None) -> tuple[Any, Any]:
    """Shapes and types of a state and a batch, and where they are."""
    state = jax.eval_shape(lambda: init_state(cfg, RECIPE, 10))
    image = jax.ShapeDtypeStruct((BATCH, *cfg.image_size, cfg.in_channels), "float32")
    batch = {"image": image, "label": jax.ShapeDtypeStruct((BATCH,), "int32")}
    placed = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)  # noqa: E731
    return jax.tree.map(placed, (state, batch))


def on_tpu(cfg: ViTConfig) -> dict[str, int]:
    """Count the operations of the step compiled for one chip."""
    chip = SingleDeviceSharding(get_topology("v5e:2x4").devices[0])
    step = jax.jit(make_train_step(cfg, RECIPE, 10), donate_argnums=0)
    compiled = step.lower(*abstract_arguments(cfg, chip)).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    return count_operations(compiled) | {"MiB of temporaries": memory.temp_size_in_bytes >> 20}


def on_cuda(cfg: ViTConfig) -> dict[str, int]:
    """Count the operations of the step before a compiler for CUDA sees it."""
    step = jax.jit(make_train_step(cfg, RECIPE, 10))
    text = step.trace(*abstract_arguments(cfg)).lower(lowering_platforms=("cuda",)).as_text()
    counter = Counter(re.findall(r"stablehlo\.(\w+)", text))
    names = ("dot_general", "transpose", "convert", "reduce", "exponential", "custom_call")
    return {"operations": counter.total()} | {name: counter[name] for name in names}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--depth", type=int, default=3)
    options = parser.parse_args()
    platforms = {"CUDA, lowered": on_cuda}
    if find_spec("libtpu") is not None:
        platforms["v5e, compiled"] = on_tpu
    for platform, count in platforms.items():
        print(platform)
        for name, (pool, context) in VARIANTS.items():
            cfg = preset("vit_base_patch16_224").replace(depth=options.depth, pool=pool)
            with context():
                counts = count(cfg)
            said = ", ".join(f"{value:,} {kind}" for kind, value in counts.items())
            print(f"  {name}: {said}", flush=True)


if __name__ == "__main__":
    main()
