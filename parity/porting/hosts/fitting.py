"""Checks that a tower fits into a host, and names the host's tensors that it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.porting.dialects.dialect import NEUTRAL, agree
from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.known import word
from parity.porting.writing.conversion_plan import plan
from vit_config import ConfigError, ViTConfig, WeightsError

OF_IMAGES = ("init", "image_size")
"""Fields that may differ if all shapes are the same."""
MOST_SAID = 8


class Fitted(NamedTuple):
    """The tensors that replace a host's."""

    tensors: dict[str, Stored]
    """New tensors by the names in the host's file, with the host's types and shapes."""
    said: tuple[str, ...]
    """Changes made to the tower, a sentence each."""


def fit(tower: Checkpoint, host: Checkpoint, *, num_classes: int | None = None) -> Fitted:
    """Convert a tower's tensors to those of a host.

    Args:
        tower: the new tower, of any dialect.
        host: the checkpoint of the tower in the host.
        num_classes: 0 removes the tower's head first.

    Raises:
        ConfigError: the tower does not fit; the message names every difference, with both values.
    """
    target = plan(tower, host.dialect.name, num_classes=num_classes, inside=True)
    tensors = target.dialect.within_body(target.tensors)
    if problems := list(_misfits(tensors, host)):
        more = f"; and {len(problems) - MOST_SAID} more" if len(problems) > MOST_SAID else ""
        raise ConfigError(
            f"{tower.name} does not fit into {host.name}: {'; '.join(problems[:MOST_SAID])}{more}"
        )
    if problems := list(_differences(target.state.config, host.config)):
        raise ConfigError(
            f"{tower.name} has the shapes of {host.name}, and computes otherwise: {'; '.join(problems)};"
            " --override FIELD=VALUE states that the tower is what the host says"
        )
    names = {id(stored): name for name, stored in host.container.tensors.items()}
    replaced, cast = {}, 0
    for name, stored in host.tensors.items():
        if id(stored) not in names:
            raise ConfigError(
                f"{host.name}: {name} lies there in another order of axes, and is not put back so"
            )
        cast += tensors[name].dtype != stored.dtype
        replaced[names[id(stored)]] = _as(tensors[name], stored.dtype, name)
    types = " and ".join(sorted({stored.dtype.name for stored in host.tensors.values()}))
    notes = [f"{cast} tensors rounded to the host's {types}"] if cast else []
    return Fitted(replaced, (*target.state.said, *notes))


def _misfits(tensors: Mapping[str, Stored], host: Checkpoint) -> Iterator[str]:
    """Yield a phrase for each name or shape that differs."""
    for name, stored in host.tensors.items():
        if name not in tensors:
            yield f"{name} is missing, in the host {stored.shape}"
        elif tensors[name].shape != stored.shape:
            yield f"{name} is {tensors[name].shape}, in the host {stored.shape}"
    buffers = {each for each in host.dialect.buffers if "{" not in each}
    for name, stored in tensors.items():
        if name not in host.place.tensors and name not in buffers and "{" not in name:
            yield f"{name} {stored.shape} is not in the host"


def _differences(tower: ViTConfig, host: ViTConfig) -> Iterator[str]:
    """Yield a phrase for each field in which two schemas of the same shapes compute differently."""
    for name in ViTConfig.fields():
        ours, theirs = getattr(tower, name), getattr(host, name)
        if name not in (*NEUTRAL, *OF_IMAGES) and not agree(name, ours, theirs):
            yield f"{name} = {word(ours)}, in the host {word(theirs)}"


def _as(stored: Stored, dtype: np.dtype, name: str) -> Stored:
    """Cast a tensor; reading it raises a WeightsError if a finite value becomes infinite."""
    if stored.dtype == dtype:
        return stored

    def load() -> np.ndarray:
        array = stored.load()
        with np.errstate(over="ignore"):
            rounded = array.astype(dtype)
        if np.isfinite(array.astype(np.float64)).all() > np.isfinite(rounded.astype(np.float64)).all():
            raise WeightsError(f"{name}: has values that the host's {dtype} cannot hold")
        return rounded

    return Stored(stored.shape, dtype, load)
