"""Digests of a checkpoint's tensors: of whole tensors, or of the parts that several hosts hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import jax
import numpy as np
import xxhash

from vit_config.files.seal import array_bytes

Region = tuple[tuple[int, int], ...]
"""Begin and end along each axis."""
SHA256_DIGITS = 64


def describe(named: Mapping[str, Any]) -> Callable[[], dict[str, list[Any]]]:
    """Begin to hash tensors in other threads; return a function that waits for them and returns
    shape, type and digest of each tensor. For a tensor that devices of several hosts hold, the
    digest is a list of (region, digest), of the parts that this process has the first copy of.

    Args:
        named: numpy arrays, which nobody may change until then, or arrays on devices, which are copied
            to the host before this returns.
    """
    heads = {name: [list(x.shape), str(x.dtype)] for name, x in named.items()}
    on_host = {name: _own_parts(x) if isinstance(x, jax.Array) else x for name, x in named.items()}
    pool = ThreadPoolExecutor()  # hashing lets other threads run
    digests = {name: pool.submit(_digests, parts) for name, parts in on_host.items()}
    pool.shutdown(wait=False)
    return lambda: {name: [*head, digests[name].result()] for name, head in heads.items()}


def join_descriptions(tensors: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Join the descriptions that several processes make of the same tensors into one.

    Raises:
        ValueError: the processes do not agree, or parts are missing.
    """
    first, *others = tensors
    whole = {name: [shape, dtype, digests] for name, (shape, dtype, digests) in first.items()}
    for other in others:
        for name, (shape, dtype, digests) in other.items():
            if whole[name][:2] != [shape, dtype]:
                raise ValueError(f"processes do not agree on {name}")
            whole[name][2] = sorted([*whole[name][2], *digests])
    for name, (shape, _, digests) in whole.items():
        if not isinstance(digests, str):
            sizes = [math.prod(end - begin for begin, end in region) for region, _ in digests]
            if sum(sizes) != math.prod(shape):
                raise ValueError(f"parts of {name} have no digest")
    return whole


def in_shares(target: Any, digests: str | list[Any]) -> bool:
    """Return whether this process can verify its devices' shares of a tensor by itself: each part
    that has a digest lies within one device's region, or outside all of them.

    Args:
        target: shape, and a sharding where the tensor is wanted on devices.
        digests: the digest of the whole tensor, or the digests of its parts.
    """
    if getattr(target, "sharding", None) is None or isinstance(digests, str):
        return False
    regions = _regions(target)
    parts = [_ends(part) for part, _ in digests]
    return all(
        _within(part, region) or not _overlap(part, region) for part in parts for region in regions
    )


def differing(name: str, named: Mapping[str, Any], tensors: Mapping[str, list[Any]]) -> list[str]:
    """Return the parts of a tensor, by name and region, whose bytes do not match their digests; for
    a tensor on devices, of the parts that this process's devices hold."""
    shape, dtype, expected = tensors[name]
    array = named.get(name)
    if array is None or [list(array.shape), str(array.dtype)] != [shape, dtype]:
        return [name]
    if isinstance(expected, str):
        return [] if matches(array, expected) else [name]
    regions: dict[Region, np.ndarray] = {tuple((0, size) for size in shape): array}
    if isinstance(array, jax.Array):
        regions = {_region(s.index, array.shape): np.asarray(s.data) for s in array.addressable_shards}
    wrong = []
    for part, part_digest in ((_ends(part), part_digest) for part, part_digest in expected):
        for region in (region for region in regions if _within(part, region)):
            inside = tuple(
                slice(begin - first, end - first)
                for (begin, end), (first, _) in zip(part, region, strict=True)
            )
            if not matches(regions[region][inside], part_digest):
                wrong.append(f"{name}[{', '.join(f'{begin}:{end}' for begin, end in part)}]")
                break
    return wrong


def digest(array: np.ndarray) -> str:
    """Compute XXH3 of 128 bits (hex) of the values in C order: against damage, not against forgery,
    and as fast as memory, so that hashing does not slow down writing."""
    return xxhash.xxh3_128_hexdigest(array_bytes(array))


def matches(array: np.ndarray, expected: str) -> bool:
    """Return whether the values have a digest; in older checkpoints it is SHA-256."""
    if len(expected) == SHA256_DIGITS:
        return hashlib.sha256(array_bytes(array)).hexdigest() == expected
    return digest(array) == expected


def _own_parts(x: jax.Array) -> list[tuple[Region, np.ndarray]]:
    """Return the parts of which this process has the first copy."""
    own = [shard for shard in x.addressable_shards if shard.replica_id == 0]
    return sorted(((_region(s.index, x.shape), np.asarray(s.data)) for s in own), key=itemgetter(0))


def _digests(parts: np.ndarray | list[tuple[Region, np.ndarray]]) -> str | list[Any]:
    if not isinstance(parts, list):
        return digest(parts)
    return [[[list(ends) for ends in region], digest(part)] for region, part in parts]


def _region(index: tuple[slice, ...], shape: tuple[int, ...]) -> Region:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


def _regions(target: Any) -> set[Region]:
    """Return the regions that this process's devices hold."""
    indices = target.sharding.addressable_devices_indices_map(target.shape)
    return {_region(index, target.shape) for index in indices.values()}


def _ends(region: list[list[int]]) -> Region:
    return tuple((begin, end) for begin, end in region)


def _within(part: Region, region: Region) -> bool:
    return all(
        first <= begin and end <= last for (begin, end), (first, last) in zip(part, region, strict=True)
    )


def _overlap(part: Region, region: Region) -> bool:
    return all(
        begin < last and first < end for (begin, end), (first, last) in zip(part, region, strict=True)
    )
