"""Rules of timm's methods that both twins share: the blocks that `indices` select, and another head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from vit_config.errors import InputError
from vit_config.schema import ViTConfig

POOLS = {"token": "class", "avg": "mean", "map": "map"}
"""timm's names of the poolings, and the schema's."""


def taken_blocks(depth: int, indices: int | Sequence[int] | None) -> frozenset[int]:
    """Return the numbers of the blocks that timm's `indices` select.

    Args:
        indices: None for all; a number for the last so many; or numbers, from the end where negative.

    Raises:
        InputError: there are no indices, or one that is no whole number or that the model does not have.
    """
    if indices is None:
        return frozenset(range(depth))
    if isinstance(indices, Integral):
        if not 0 < int(indices) <= depth:
            raise InputError(f"indices = {indices}: the model has {depth} blocks; expected 1 to {depth}")
        return frozenset(range(depth - int(indices), depth))
    given = list(indices) if isinstance(indices, Iterable) else []
    numbers = [int(each) for each in given if isinstance(each, Integral)]
    taken = [number % depth for number in numbers if -depth <= number < depth]
    if not given or len(taken) != len(given):
        raise InputError(
            f"indices = {given or indices!r}: the model has {depth} blocks; expected at least one whole"
            f" number from {-depth} to {depth - 1}"
        )
    return frozenset(taken)


def check_format(output_fmt: str, formats: tuple[str, str]) -> bool:
    """Return whether `output_fmt` is the first of two formats, feature maps; the second is tokens.

    Raises:
        InputError: `output_fmt` is neither.
    """
    if output_fmt not in formats:
        raise InputError(f"output_fmt = {output_fmt!r}; expected {' or '.join(map(repr, formats))}")
    return output_fmt == formats[0]


def with_head(cfg: ViTConfig, num_classes: int, global_pool: str | None = None) -> ViTConfig:
    """Return the schema with another head, as timm's `reset_classifier`; norms stay where they are.

    Args:
        num_classes: 0 removes the head.
        global_pool: ``token``, ``avg`` or, where the model has it, ``map``; None keeps the pooling.

    Raises:
        InputError: another pooling, or attention pooling where there is none.
        ConfigError: the schema contradicts it, as a distillation token does ``avg``.
    """
    changes: dict[str, Any] = {"num_classes": num_classes}
    if not num_classes:
        changes |= {"head_bias": True, "head_activation": "none", "dropout_head": 0.0}
    if global_pool is None:
        return cfg.replace(**changes)
    if global_pool not in POOLS:
        raise InputError(f"global_pool = {global_pool!r}; expected {', '.join(map(repr, POOLS))}")
    if global_pool == "map" and cfg.pool != "map":
        raise InputError(
            f'global_pool = "map" needs parameters that a model of pool = "{cfg.pool}" does not have;'
            ' build one with pool = "map"'
        )
    changes["pool"] = POOLS[global_pool]
    changes |= {"pool_window": None, "pool_standardise": False}
    if global_pool != "map":
        changes |= {"pool_num_heads": None, "pool_mlp_dim": None}
    if global_pool == "token":
        changes["pool_prefix"] = False
    schema = cfg.replace(**changes)
    if cfg.head_hidden and schema.head_inputs != cfg.head_inputs:
        raise InputError(
            f'global_pool = "{global_pool}" gives {schema.head_inputs} values, but the layer before the'
            f" head (head_hidden = {cfg.head_hidden}) takes {cfg.head_inputs}"
        )
    return schema
