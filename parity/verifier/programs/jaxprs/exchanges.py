"""Collectives, each as a function of the parts that a group of devices holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.verifier.programs.jaxprs.mesh import Devices

Parts = list[np.ndarray]
"""What the devices of one group hold, in their order."""


@dataclass(frozen=True)
class Collective:
    """An operation between devices: from the parts of a group to the parts that it holds afterwards."""

    name: str
    params: dict[str, Any]
    devices: Devices
    axes: tuple[str, ...]

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the stack of parts after it, given the stack before."""
        value = np.asarray(operands[0])
        parts: list[Any] = [None] * self.devices.count
        for group in self.devices.groups(self.axes):
            after = COLLECTIVES[self.name](self.params, [value[each] for each in group])
            for device, part in zip(group, after, strict=True):
                parts[device] = part
        return np.stack(parts)


def _total(how: Callable[..., Any]) -> Callable[[dict[str, Any], Parts], Parts]:
    def run(params: dict[str, Any], parts: Parts) -> Parts:
        return [how(np.stack(parts), axis=0)] * len(parts)

    return run


def _all_gather(params: dict[str, Any], parts: Parts) -> Parts:
    axis = params["all_gather_dimension"]
    whole = np.concatenate(parts, axis) if params["tiled"] else np.stack(parts, axis)
    return [whole] * len(parts)


def _reduce_scatter(params: dict[str, Any], parts: Parts) -> Parts:
    axis, total = params["scatter_dimension"], np.sum(parts, axis=0)
    shares = np.split(total, len(parts), axis)
    return shares if params["tiled"] else [np.squeeze(each, axis) for each in shares]


def _all_to_all(params: dict[str, Any], parts: Parts) -> Parts:
    """Exchange pieces among all devices, tiled; JAX has reshaped before what is not."""
    pieces = [np.split(each, len(parts), params["split_axis"]) for each in parts]
    return [np.concatenate([own[i] for own in pieces], params["concat_axis"]) for i in range(len(parts))]


def _permute(params: dict[str, Any], parts: Parts) -> Parts:
    received = [np.zeros_like(each) for each in parts]
    for source, target in params["perm"]:
        received[target] = parts[source]
    return received


UNCHANGED = frozenset(["pvary", "pcast", "pbroadcast", "preduced", "vary_unreduced_cast"])
"""Primitives that change what is known of a value, not the value."""
COLLECTIVES: dict[str, Callable[[dict[str, Any], Parts], Parts]] = {
    "psum": _total(np.sum),
    "pmax": _total(np.max),
    "pmin": _total(np.min),
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _permute,
}
