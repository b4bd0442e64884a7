"""The state of a model during rewriting, and helpers for rewrites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, kv_heads
from parity.porting.formats.base import Stored
from vit_config import ConfigError, ViTConfig
from vit_config.parameters import parameters

Arrays = dict[str, Stored]


@dataclass(frozen=True)
class ModelState:
    """A model: its schema and its tensors by the twins' names."""

    config: ViTConfig
    arrays: Arrays
    said: tuple[str, ...] = ()
    """Rewrites done so far, a sentence each."""
    rounds: bool = False
    """Whether a rewrite stored a sum of the model, rounded to the type of the weights."""

    def rewritten(
        self, note: str, changes: Mapping[str, Any], new: Mapping[str, Stored], *, rounds: bool = False
    ) -> ModelState:
        """Return the state with fields changed and tensors replaced or added.

        Tensors that the new schema lacks are left out.

        Raises:
            CannotRewriteError: the fields contradict each other, or the tensors do not fit the schema.
        """
        try:
            cfg = self.config.replace(**changes)
        except ConfigError as error:
            raise CannotRewriteError(str(error)) from None
        every = {**self.arrays, **new}
        expected = {name: each.shape for name, each in parameters(cfg).items()}
        for name, shape in expected.items():
            require(name in every and every[name].shape == shape, f"it makes no {name}")
        order = [name for name in every if name in expected]
        if rounds:
            note += f" (rounded to {first(self).dtype})"
        return ModelState(
            cfg, {name: every[name] for name in order}, (*self.said, note), self.rounds or rounds
        )


def canonical(cfg: ViTConfig) -> ViTConfig:
    """Return an equal schema in which values that mean a default are the default."""
    changes: dict[str, Any] = {}
    if cfg.num_kv_heads:
        changes["num_kv_heads"] = kv_heads(cfg.kv_heads, cfg.num_heads)
    if cfg.attention_head_dim and cfg.attention_head_dim * cfg.num_heads == cfg.hidden_size:
        changes["attention_head_dim"] = None
    if cfg.pool_num_heads == cfg.num_heads:
        changes["pool_num_heads"] = None
    if cfg.pool_mlp_dim == cfg.mlp_dim:
        changes["pool_mlp_dim"] = None
    if cfg.num_prefix_rows == cfg.replace(pos_embed_prefix="auto").num_prefix_rows:
        changes["pos_embed_prefix"] = "auto"
    return cfg.replace(**changes) if changes else cfg


class CannotRewriteError(Exception):
    """A rewrite is not possible for this model; the message says why."""


Rewrite = Callable[[ModelState, Any], ModelState]
"""A rewrite, given a state and the values that a field may have; raises `CannotRewriteError`."""


def _blocks(cfg: ViTConfig) -> Iterator[str]:
    """Yield the prefixes, with a final dot, of each block's attention and MLP."""
    for i in range(cfg.depth):
        if cfg.num_parallel == 1:
            yield f"blocks.{i}."
        else:
            for j in range(cfg.num_parallel):
                yield f"blocks.{i}.attns.{j}."
                yield f"blocks.{i}.ffns.{j}."


def find_in_blocks(state: ModelState, *leaves: str) -> Iterator[tuple[str, ...]]:
    """Yield the full names of `leaves` in each block that has the first of them."""
    for block in _blocks(state.config):
        if f"{block}{leaves[0]}" in state.arrays:
            yield tuple(f"{block}{leaf}" for leaf in leaves)


def first(state: ModelState) -> Stored:
    """Return the model's first tensor, used for its type."""
    return next(iter(state.arrays.values()))


def constant(shape: tuple[int, ...], value: float, like: Stored) -> Stored:
    """Return a constant tensor, with the type of another."""
    return Stored(shape, like.dtype, lambda: np.full(shape, value, like.dtype))


def all_equal(stored: Stored, value: float) -> bool:
    """Return whether every number equals `value`; reads the tensor."""
    return bool(np.all(stored.load() == value))


def require(condition: bool, why: str = "") -> None:
    """Raise `CannotRewriteError` unless the condition holds.

    Args:
        why: the reason for the user; empty if the rewrite merely does not apply.
    """
    if not condition:
        raise CannotRewriteError(why)


def allows(allowed: Any, value: Any) -> bool:
    """Return whether a value is among those that a field may have."""
    return allowed is ANY or value in allowed
