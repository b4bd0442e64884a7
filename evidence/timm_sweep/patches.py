"""A padded batch of patches through a model of timm's and both twins: outputs and every gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from evidence.timm_sweep.peer import float64
from parity.measure.error import relative_error
from parity.porting.dialects.records.timm import read_state
from vit_config import ViTConfig
from vit_config.images.patches import Patches, collate
from vit_jax.functional import make_apply
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model
from vit_jax.weights import from_numpy as to_jax
from vit_torch.weights import from_arrays, to_arrays

GRIDS = ((2, 3), (5, 1), (1, 1), (4, 5), (3, 3))
"""Grids of the images: oblong, one patch wide, one patch, the table's own, square."""
LENGTHS = (16, 24)
"""Lengths of a padded batch, of which the second is the shortest that holds all."""


def patches_of(cfg: ViTConfig, seed: int) -> Patches:
    """Draw images of `GRIDS`, or as many squares of patches, and pad them; the padding is no number."""
    stream = np.random.default_rng([seed, 2])
    (ph, pw), C, window = cfg.patch_size, cfg.in_channels, cfg.pool_window or 1
    grids = [(gh * window, gw * window) for gh, gw in GRIDS]
    images = [stream.standard_normal((gh * ph, gw * pw, C)) for gh, gw in grids]
    batch = collate(images, cfg.patch_size, [length * window**2 for length in LENGTHS])
    batch.pixels[~batch.valid] = np.nan
    return batch


def compare_patches(
    cfg: ViTConfig, model: nn.Module, arrays: Mapping[str, np.ndarray], seed: int
) -> dict[str, dict[str, float]]:
    """Return each twin's errors against timm's model of the same values, in float64.

    Args:
        arrays: the model's parameters by the twins' names.
    """
    batch = patches_of(cfg, seed)
    tokens = (batch.valid.shape[1] // cfg.pool_window**2,) if cfg.pool_window else ()
    pull = np.random.default_rng([seed, 3]).standard_normal((len(batch.valid), *tokens, cfg.num_logits))
    reference = _timm(model, batch, pull)
    by_twin = {"JAX": _jax(cfg, arrays, batch, pull), "PyTorch": _torch(cfg, arrays, batch, pull)}
    return {
        twin: {
            "logits of patches": relative_error(logits, reference[0]),
            "gradients of patches": max(
                relative_error(gradients[name], each) for name, each in reference[1].items()
            ),
        }
        for twin, (logits, gradients) in by_twin.items()
    }


Result = tuple[np.ndarray, dict[str, np.ndarray]]
"""Logits, and the gradient of their sum times `pull` by every parameter."""


def _tensors(batch: Patches) -> Patches:
    return Patches(*(torch.from_numpy(each) for each in batch))


def _timm(model: nn.Module, batch: Patches, pull: np.ndarray) -> Result:
    padded = _tensors(batch)
    given = {
        "patches": padded.pixels.nan_to_num(0.0),
        "patch_coord": padded.coordinates.long(),
        "patch_valid": padded.valid,
    }
    model.zero_grad()
    with float64():
        logits = model(given)
        (logits * torch.from_numpy(pull)).sum().backward()
    grads = {name: each.grad for name, each in model.named_parameters()}
    state = read_state(grads, join=torch.cat)
    return logits.detach().numpy(), {name: each.numpy() for name, each in state.items()}


def _torch(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], batch: Patches, pull: np.ndarray) -> Result:
    model = from_arrays(cfg, arrays, kernel="reference")
    logits = model(_tensors(batch)).logits
    (logits * torch.from_numpy(pull)).sum().backward()
    named = model.named_parameters()  # bounds have no gradient
    grads = {n: torch.zeros_like(each) if each.grad is None else each.grad for n, each in named}
    return logits.detach().numpy(), to_arrays(model, grads)


def _jax(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], batch: Patches, pull: np.ndarray) -> Result:
    with jax.enable_x64(True):
        parts, run = _compiled(cfg)
        params = {leaf.name: to_jax(leaf.from_common(arrays[leaf.name])) for leaf in parts}
        (_, logits), grads = run(params, Patches(*map(jnp.asarray, batch)), jnp.asarray(pull))
        return np.asarray(logits), {
            leaf.name: np.asarray(leaf.to_common(grads[leaf.name])) for leaf in parts
        }


@lru_cache(maxsize=2)
def _compiled(cfg: ViTConfig) -> Any:
    apply = make_apply(cfg, kernel="reference")

    def loss(params: Any, batch: Patches, pull: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = apply(params, batch).logits
        return (logits * pull).sum(), logits

    return leaves(abstract_model(cfg)), jax.jit(jax.value_and_grad(loss, has_aux=True))
