"""Operation counts of a compiled step of the JAX twin, which a busy machine does not change."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

from parity.measure.versions.of_jax import usual_options
from vit_config import Recipe, ViTConfig
from vit_jax.compiling import compiler_options
from vit_jax.step import init_state, make_train_step

COUNTED = ("dot", "convolution", "transpose", "copy", "convert", "reduce", "fusion")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][\w\-]*)\(", re.MULTILINE)


def compile_step(cfg: ViTConfig, recipe: Recipe, batch_size: int) -> Any:
    """Compile the training step as users run it, whatever the flags of this process, its state
    donated; nothing is allocated."""
    state = jax.eval_shape(lambda: init_state(cfg, recipe, 1))
    H, W = cfg.image_size
    image = jax.ShapeDtypeStruct((batch_size, H, W, cfg.in_channels), jnp.float32)
    batch = {"image": image, "label": jax.ShapeDtypeStruct((batch_size,), jnp.int32)}
    step = jax.jit(make_train_step(cfg, recipe, 1), donate_argnums=0)
    return step.lower(state, batch).compile(usual_options() | compiler_options("cpu"))


def count_operations(compiled: Any) -> dict[str, int]:
    """Count each of `COUNTED`, inside fusions too, all operations, and the bytes that they access."""
    counter = Counter(_OPERATION.findall(compiled.as_text()))
    counts = {name: counter[name] for name in COUNTED if counter[name]}
    return counts | {
        "operations": sum(counter.values()),
        "bytes": int(compiled.cost_analysis()["bytes accessed"]),
    }
