"""Digests of the tensors of a checkpoint: of each whole, or of the parts that several hosts hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

Region = tuple[tuple[int, int], ...]
"""Begin and end along each axis."""


def describe(named: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Shape, type and SHA-256 digest (hex) of each tensor; in place of the digest a list of (region,
    digest) where hosts hold parts of it. Hosts exchange the digests, so all have to call this.

    Args:
        named: numpy arrays, or arrays on the devices of several hosts.
    """
    split = {name: x for name, x in named.items() if isinstance(x, jax.Array)}
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        whole = dict(pool.map(lambda name: (name, digest(named[name])), named.keys() - split.keys()))
        own = dict(pool.map(lambda name: (name, _own_parts(split[name])), split))
    digests = {**whole, **_exchanged(own, split)}
    return {name: [list(x.shape), str(x.dtype), digests[name]] for name, x in named.items()}


def differing(name: str, named: Mapping[str, np.ndarray], tensors: Mapping[str, list[Any]]) -> list[str]:
    """The parts of a tensor, by name and region, whose bytes are not those that were described."""
    shape, dtype, expected = tensors[name]
    array = named.get(name)
    if array is None or [list(array.shape), str(array.dtype)] != [shape, dtype]:
        return [name]
    if isinstance(expected, str):
        return [] if digest(array) == expected else [name]
    return [
        f"{name}[{', '.join(f'{begin}:{end}' for begin, end in region)}]"
        for region, told in expected
        if digest(array[tuple(slice(begin, end) for begin, end in region)]) != told
    ]


def digest(array: np.ndarray) -> str:
    """SHA-256 (hex) of the values in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def regions(x: jax.Array) -> list[Region]:
    """The parts that devices hold of an array, in order; each once, however many hold it."""
    held = x.sharding.devices_indices_map(x.shape).values()
    return sorted({_region(index, x.shape) for index in held})


def _own_parts(x: jax.Array) -> dict[Region, str]:
    """Digests of the parts of which this process has the first copy."""
    own = [shard for shard in x.addressable_shards if shard.replica_id == 0]
    return {_region(shard.index, x.shape): digest(np.asarray(shard.data)) for shard in own}


def _region(index: tuple[slice, ...], shape: tuple[int, ...]) -> Region:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


def _exchanged(
    own: Mapping[str, Mapping[Region, str]], split: Mapping[str, jax.Array]
) -> dict[str, list[Any]]:
    """The digests of all parts on every host, by name."""
    places = [(name, region) for name, x in split.items() for region in regions(x)]
    if not places:
        return {}
    mine = np.zeros((len(places), 32), np.uint8)  # nobody else has a line of this host's
    for row, (name, region) in zip(mine, places, strict=True):
        if region in own[name]:
            row[:] = np.frombuffer(bytes.fromhex(own[name][region]), np.uint8)
    everyone = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, *mine.shape)
    found: dict[str, list[Any]] = {name: [] for name in split}
    for (name, region), row in zip(places, everyone.max(axis=0), strict=True):
        found[name].append([[list(ends) for ends in region], row.tobytes().hex()])
    return found
