"""Small tensors of PyTorch, copied where they lie: a GPU is waited for once a step."""

from __future__ import annotations

import math
from typing import NamedTuple

import ml_dtypes
import numpy as np
import torch

from parity.measure.traces.pool import SMALL, Part
from parity.measure.traces.sample import Sample, sampled_shape, spacing

NUMBERS = 2**20
"""Of one room."""


_AS_BITS = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Types that numpy does not have of its own."""


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values of a tensor of any type that numpy knows, bit for bit; they may share its memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    bits, dtype = _AS_BITS.get(tensor.dtype, (tensor.dtype, None))
    return tensor.numpy() if dtype is None else tensor.view(bits).numpy().view(dtype)


class TensorRoom:
    """Memory of one type on one device."""

    def __init__(self, like: torch.Tensor) -> None:
        with torch.inference_mode(False):  # what is made within may not be written to without
            self.numbers = torch.empty(NUMBERS, dtype=like.dtype, device=like.device)
        self.end = 0

    def taken(self) -> np.ndarray:
        """What was copied since it was empty, (n,)."""
        return as_numpy(self.numbers[: self.end])


class _Plan(NamedTuple):
    """How a tensor of one shape in memory is copied."""

    size: int
    """How many numbers are kept."""
    shape: tuple[int, ...]
    """Of them."""
    source: tuple[int, ...]
    """How far apart they lie, along each axis."""
    target: tuple[int, ...]
    """How far apart they will lie."""
    spacing: tuple[int, ...] | None


class TensorRooms:
    """Rooms of all types, as many as a step needs."""

    def __init__(self, keep: int | None) -> None:
        """Nothing is taken yet.

        Args:
            keep: numbers of one tensor that are kept, at most. None keeps everything.
        """
        self._keep = keep
        self._rooms: dict[tuple[torch.dtype, torch.device], list[TensorRoom]] = {}
        self._plans: dict[tuple[torch.Size, tuple[int, ...]], _Plan] = {}

    def take(self, x: torch.Tensor) -> Part | Sample:
        """A tensor, or its sample: copied if it is small, or else as it lies there."""
        x = x.detach() if x.layout is torch.strided else x.detach().to_dense()
        plan = self._plans.get(key := (x.shape, x.stride()))
        if plan is None:
            plan = self._plans[key] = self._planned(*key)
        sampled = x.as_strided(plan.shape, plan.source)
        if plan.size > SMALL:
            return Sample(as_numpy(sampled), tuple(x.shape), plan.spacing)
        room = self._room(x, plan.size)
        room.numbers.as_strided(plan.shape, plan.target, room.end).copy_(sampled)
        room.end += plan.size
        return Part(room, room.end - plan.size, tuple(x.shape), plan.spacing)

    def empty(self) -> None:
        """Begin anew: what was copied is written."""
        for rooms in self._rooms.values():
            for room in rooms:
                room.end = 0

    def _planned(self, shape: torch.Size, strides: tuple[int, ...]) -> _Plan:
        whole = self._keep is None or math.prod(shape) <= self._keep
        steps = (1,) * len(shape) if whole else spacing(tuple(shape), self._keep)
        kept = sampled_shape(tuple(shape), steps)
        return _Plan(
            math.prod(kept),
            kept,
            tuple(stride * step for stride, step in zip(strides, steps, strict=True)),
            tuple(math.prod(kept[i + 1 :]) for i in range(len(kept))),
            None if whole else steps,
        )

    def _room(self, like: torch.Tensor, size: int) -> TensorRoom:
        rooms = self._rooms.setdefault((like.dtype, like.device), [])
        for room in rooms:
            if room.end + size <= NUMBERS:
                return room
        rooms.append(TensorRoom(like))
        return rooms[-1]
