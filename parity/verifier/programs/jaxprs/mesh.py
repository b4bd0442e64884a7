"""A mesh of devices, and the part of a value that each device holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.verifier.programs.fingerprint import distance


@dataclass(frozen=True)
class Devices:
    """The axes of a mesh and how many devices lie along each."""

    sizes: dict[str, int]

    @property
    def count(self) -> int:
        """How many devices."""
        return math.prod(self.sizes.values())

    def along(self, axes: Sequence[str]) -> int:
        """Return how many devices lie along some axes."""
        return math.prod(self.sizes[each] for each in axes)

    def groups(self, axes: Sequence[str]) -> np.ndarray:
        """Return the devices that communicate over some axes: (groups, devices along the axes)."""
        names = list(self.sizes)
        ids = np.arange(self.count).reshape(tuple(self.sizes.values()))
        inside = [names.index(each) for each in axes]
        rest = [i for i in range(len(names)) if i not in inside]
        return ids.transpose([*rest, *inside]).reshape(-1, self.along(axes))

    def reduced(self, value: np.ndarray, axes: Sequence[str], how: Callable[..., Any]) -> np.ndarray:
        """Reduce a stacked value over some axes; every device of a group holds the result."""
        result = np.empty_like(value, dtype=np.result_type(value, how(value[:1], axis=0)))
        for group in self.groups(axes):
            result[group] = how(value[group], axis=0)
        return result


def divide(devices: Devices, spec: Sequence[tuple[str, ...]], operands: Sequence[Any]) -> np.ndarray:
    """Return the stack of the parts of a value that devices hold.

    Args:
        devices: the mesh.
        spec: for each axis of the value, the axes of the mesh over which it is split.
        operands: the value.
    """
    value, parts = np.asarray(operands[0]), []
    for device in range(devices.count):
        place = _place(devices, device)
        part = value
        for axis, over in enumerate(spec):
            if over:
                count, number = devices.along(over), _number(devices, over, place)
                part = np.split(part, count, axis)[number]
        parts.append(part)
    return np.stack(parts)


def join(devices: Devices, spec: Sequence[tuple[str, ...]], operands: Sequence[Any]) -> np.ndarray:
    """Return the value whose parts devices hold; of a part that several hold, the first device's."""
    stacked = np.asarray(operands[0])
    local = stacked.shape[1:]
    counts = [devices.along(over) for over in spec] + [1] * (len(local) - len(spec))
    whole = np.empty([n * m for n, m in zip(local, counts, strict=True)], stacked.dtype)
    for device in reversed(range(devices.count)):  # the first device writes last
        place = _place(devices, device)
        where = []
        for axis, size in enumerate(local):
            number = _number(devices, spec[axis], place) if axis < len(spec) else 0
            where.append(slice(number * size, (number + 1) * size))
        whole[tuple(where)] = stacked[device]
    return whole


def _place(devices: Devices, device: int) -> dict[str, int]:
    numbers = np.unravel_index(device, tuple(devices.sizes.values()))
    return dict(zip(devices.sizes, map(int, numbers), strict=True))


def _number(devices: Devices, axes: Sequence[str], place: dict[str, int]) -> int:
    """Return which part a device has of a value that is split over some axes."""
    number = 0
    for each in axes:
        number = number * devices.sizes[each] + place[each]
    return number


def index_along(devices: Devices, axes: Sequence[str], _: Sequence[Any]) -> np.ndarray:
    """Return the number of each device along some axes: (devices,)."""
    numbers = [_number(devices, axes, _place(devices, each)) for each in range(devices.count)]
    return np.array(numbers, np.int32)


def hold_the_same(devices: Devices, axes: Sequence[str], stacked: np.ndarray) -> bool:
    """Return whether devices along some axes hold the same: infinities at the same places, and the rest
    up to rounding."""
    return stacked.dtype.kind not in "fiubc" or all(
        distance(stacked[group[0]], stacked[each]) <= FARTHEST.norm
        for group in devices.groups(axes)
        for each in group[1:]
    )
