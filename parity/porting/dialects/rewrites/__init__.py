"""Exact rewrites: another schema with other tensors that computes the same function.

A target that lacks an option may still hold the model: a missing bias is a bias of zeros, a fixed
position table is a learned one. No rewrite changes a sum or product of the model, beyond adding zero and
multiplying by one. A sum of two parameters that the model computes may be stored in their place: it is
then rounded to the type of the weights, as the model rounds it when it computes in that type
(`ModelState.rounds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.rewrites import biases, head, layers, positions
from parity.porting.dialects.rewrites.rewrite import (
    CannotRewriteError,
    ModelState,
    Rewrite,
    canonical,
    require,
)
from vit_config import ConfigError

__all__ = ["REWRITES", "CannotHoldError", "CannotRewriteError", "ModelState", "canonical", "express"]


class CannotHoldError(ConfigError):
    """A dialect cannot express a model, however it is rewritten."""

    def __init__(self, message: str, name: str = "", reasons: Mapping[str, str] | None = None):
        super().__init__(message)
        self.name = name
        """Name of the dialect."""
        self.reasons = reasons or {}
        """A sentence for each field in the way."""


def express(state: ModelState, dialect: Dialect) -> ModelState:
    """Rewrite a model until a dialect can express it.

    Raises:
        CannotHoldError: no rewrite helps; the message names every field in the way, with the reason.
    """
    state = replace(state, config=canonical(state.config))
    seen = {state.config}
    while problems := dialect.problems(state.config):
        reasons = {}
        for name, problem in problems.items():
            try:
                new = REWRITES.get(name, _impossible)(
                    state, dialect.allowed(name, state.config) if name else None
                )
                # two fields may ask for opposite rewrites of each other
                require(new.config not in seen and name not in dialect.problems(new.config))
                seen.add(new.config)
                state = new
                break
            except CannotRewriteError as error:
                reasons[name] = f"{problem}{f': {error}' if str(error) else ''}"
        else:
            message = f"{dialect.name} cannot hold this model: {'; '.join(reasons.values())}"
            raise CannotHoldError(message, dialect.name, reasons)
    return state


def _impossible(state: ModelState, allowed: Any) -> ModelState:
    raise CannotRewriteError("")


REWRITES: dict[str, Rewrite] = {
    "patch_embed": layers.patch_embed,
    "mlp": layers.mlp,
    "pos_embed": positions.pos_embed,
    "pos_embed_grid": positions.pos_embed_grid,
    "pos_embed_prefix": positions.pos_embed_prefix,
    "patch_bias": biases.zero_bias("patch_bias", ("patch_embed.proj",), "patch projection"),
    "qkv_bias": biases.qkv_bias,
    "k_bias": biases.k_bias,
    "attention_out_bias": biases.zero_bias("attention_out_bias", ("attn.proj",), "attention output"),
    "mlp_bias": biases.zero_bias("mlp_bias", ("mlp.fc1", "mlp.fc1_g", "mlp.fc1_x", "mlp.fc2"), "MLP"),
    "head_bias": biases.zero_bias("head_bias", ("head", "head_dist"), "head"),
    "layer_scale": layers.layer_scale,
    "layer_scale_on": layers.layer_scale_on,
    "final_norm": head.final_norm,
    "num_kv_heads": layers.num_kv_heads,
    "pool": head.pool,
    "head_hidden": head.head_hidden,
}
"""The rewrite of each field."""
