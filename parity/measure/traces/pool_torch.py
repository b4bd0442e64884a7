"""Pools of PyTorch's small tensors, on the tensors' own device: a GPU is waited for once a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

from parity.measure.traces.pool import SMALL, Pooled, memory
from parity.measure.traces.sample import Sample, sampled_shape, spacing

NUMBERS = 2**20
"""Numbers that one room holds."""


_AS_BITS = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Types that numpy lacks, with the type to view their bits as and the type of ml_dtypes."""


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values bit for bit, of any type in numpy or ml_dtypes; memory may be shared."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    bits, dtype = _AS_BITS.get(tensor.dtype, (tensor.dtype, None))
    return tensor.numpy() if dtype is None else tensor.view(bits).numpy().view(dtype)


class _Plan(NamedTuple):
    """The plan for copying tensors of one shape and strides."""

    size: int
    """Number of elements kept."""
    shape: tuple[int, ...]
    """Shape of the kept elements."""
    source: tuple[int, ...]
    """Their strides in the tensor."""
    target: tuple[int, ...]
    """Their strides in the room."""
    spacing: tuple[int, ...] | None


def _planned(shape: torch.Size, strides: tuple[int, ...], keep: int | None) -> _Plan:
    whole = keep is None or math.prod(shape) <= keep
    steps = (1,) * len(shape) if whole else spacing(tuple(shape), keep)
    counts = sampled_shape(tuple(shape), steps)
    return _Plan(
        math.prod(counts),
        counts,
        tuple(stride * step for stride, step in zip(strides, steps, strict=True)),
        tuple(math.prod(counts[i + 1 :]) for i in range(len(counts))),
        None if whole else steps,
    )


class TensorRoom:
    """Room for numbers of one type on one device."""

    def __init__(self, kind: tuple[torch.dtype, torch.device], size: int = NUMBERS) -> None:
        dtype, device = kind
        with torch.inference_mode(False):  # inference tensors may not be written to later
            self.numbers = (
                torch.from_numpy(memory(size * dtype.itemsize, np.dtype(np.uint8))).view(dtype)
                if device.type == "cpu"
                else torch.empty(size, dtype=dtype, device=device)
            )
        self.end = 0

    def place(self, x: torch.Tensor, plan: _Plan) -> tuple[Pooled, torch.Tensor]:
        """Reserve a tensor's place; return it, and the memory to copy the tensor to."""
        begin = self.end
        self.end += plan.size
        target = self.numbers.as_strided(plan.shape, plan.target, begin)
        return Pooled(self, begin, tuple(x.shape), plan.spacing), target

    def taken(self) -> np.ndarray:
        """Return all numbers copied since the room was empty, (n,)."""
        return as_numpy(self.numbers[: self.end])


class TensorRooms:
    """Rooms for all types and devices, as many as a step needs."""

    def __init__(self, keep: int | None) -> None:
        """Start without rooms.

        Args:
            keep: largest number of elements kept of one tensor. None keeps everything.
        """
        self._keep = keep
        self._rooms: dict[tuple[torch.dtype, torch.device], list[TensorRoom]] = {}
        self._plans: dict[tuple[torch.Size, tuple[int, ...]], _Plan] = {}
        self._groups: dict[tuple[str, int], _Group] = {}
        self._taken: Counter[str] = Counter()
        """Number of times each group came in this step."""

    def take(self, x: torch.Tensor) -> Pooled | Sample:
        """Return a tensor or its sample: copied to a room if it is small, or else where it lies."""
        x = _plain(x)
        plan = self._plan(x)
        sampled = x.as_strided(plan.shape, plan.source)
        if plan.size > SMALL:
            return Sample(as_numpy(sampled), tuple(x.shape), plan.spacing)
        part, target = self._room(x, plan.size).place(x, plan)
        target.copy_(sampled)
        return part

    def take_all(self, group: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Pooled | Sample]:
        """Take tensors that come together in every step, such as all parameters, small ones in one call.

        Args:
            group: any name for these tensors.
        """
        plain = {name: _plain(x) for name, x in tensors.items()}
        like = [(name, x.shape, x.stride(), x.dtype, x.device) for name, x in plain.items()]
        self._taken[group] += 1
        key = group, self._taken[group]  # what was copied before in this step is not written yet
        known = self._groups.get(key)
        if known is None or known.like != like:
            plans = {name: self._plan(x) for name, x in plain.items()}
            known = self._groups[key] = _Group(like, plain, plans)
        parts = known.take(plain)
        return {name: parts.get(name) or self.take(x) for name, x in plain.items()}

    def empty(self) -> None:
        """Mark all rooms as empty, once their numbers are written."""
        self._taken.clear()
        for rooms in self._rooms.values():
            for room in rooms:
                room.end = 0

    def _plan(self, x: torch.Tensor) -> _Plan:
        plan = self._plans.get(key := (x.shape, x.stride()))
        if plan is None:
            plan = self._plans[key] = _planned(*key, self._keep)
        return plan

    def _room(self, like: torch.Tensor, size: int) -> TensorRoom:
        rooms = self._rooms.setdefault((like.dtype, like.device), [])
        for room in rooms:
            if room.end + size <= NUMBERS:
                return room
        rooms.append(TensorRoom((like.dtype, like.device)))
        return rooms[-1]


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x.detach() if x.layout is torch.strided else x.detach().to_dense()


class _Group:
    """A group of tensors, each with a place of its own that lasts from step to step."""

    def __init__(
        self, like: Sequence[Any], tensors: Mapping[str, torch.Tensor], plans: Mapping[str, _Plan]
    ) -> None:
        self.like = like
        self._parts: dict[str, Pooled] = {}
        self._targets: list[torch.Tensor] = []
        self._sources: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        small = [name for name, plan in plans.items() if plan.size <= SMALL]
        sizes: Counter[tuple[torch.dtype, torch.device]] = Counter()
        for name in small:
            sizes[tensors[name].dtype, tensors[name].device] += plans[name].size
        rooms = {kind: TensorRoom(kind, size) for kind, size in sizes.items()}
        for name in small:
            x, plan = tensors[name], plans[name]
            self._parts[name], target = rooms[x.dtype, x.device].place(x, plan)
            self._targets.append(target)
            self._sources.append((name, plan.shape, plan.source))

    def take(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, Pooled]:
        """Copy the small tensors, and return their places."""
        sources = [tensors[name].as_strided(shape, strides) for name, shape, strides in self._sources]
        if sources:
            torch._foreach_copy_(self._targets, sources)  # type: ignore[attr-defined]
        return self._parts
