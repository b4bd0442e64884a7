"""A program over a mesh of devices, as one device can run it: `shard_map`, and `pmap`, which is one.

Inside, a value is the stack of what the devices hold, (devices, *local shape), devices in the order of
the mesh. Since values meet by means over their elements, a batch that is split over devices meets the
whole batch, and so does what every device holds alike; collectives are operations between the stacked
parts. No device is needed, emulated or real: the mesh may be a `jax.sharding.AbstractMesh`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.operations.program import Operation, Source
from vit_config import InputError

Parts = list[np.ndarray]
"""What the devices of one group hold, in their order."""


@dataclass(frozen=True)
class Devices:
    """The axes of a mesh and how many devices lie along each."""

    sizes: dict[str, int]

    @property
    def count(self) -> int:
        """How many devices."""
        return math.prod(self.sizes.values())

    def along(self, axes: Sequence[str]) -> int:
        """How many devices lie along some axes."""
        return math.prod(self.sizes[each] for each in axes)

    def groups(self, axes: Sequence[str]) -> np.ndarray:
        """(groups, devices along the axes): the devices that communicate over some axes."""
        names = list(self.sizes)
        ids = np.arange(self.count).reshape(tuple(self.sizes.values()))
        inside = [names.index(each) for each in axes]
        rest = [i for i in range(len(names)) if i not in inside]
        return ids.transpose([*rest, *inside]).reshape(-1, self.along(axes))

    def reduced(self, value: np.ndarray, axes: Sequence[str], how: Callable[..., Any]) -> np.ndarray:
        """A stacked value reduced over some axes; every device of a group holds the result."""
        found = np.empty_like(value, dtype=np.result_type(value, how(value[:1], axis=0)))
        for group in self.groups(axes):
            found[group] = how(value[group], axis=0)
        return found


@dataclass(frozen=True)
class OnEach:
    """An operation that every device runs on its own part."""

    run: Callable[[Sequence[Any]], Any]
    count: int
    stacked: tuple[bool, ...]
    """Which operands are stacks; the others are numbers, the same on every device."""

    def __call__(self, operands: Sequence[Any]) -> Any:
        """The stack of the results; of several results, a tuple of stacks."""
        results = []
        for device in range(self.count):
            own = [x[device] if s else x for x, s in zip(operands, self.stacked, strict=True)]
            results.append(self.run(own))
        if isinstance(results[0], (list, tuple)):
            return [_stack(each) for each in zip(*results, strict=True)]
        return _stack(results)


@dataclass(frozen=True)
class Collective:
    """An operation between devices: from the parts of a group to the parts that it holds afterwards."""

    name: str
    params: dict[str, Any]
    devices: Devices
    axes: tuple[str, ...]

    def __call__(self, operands: Sequence[Any]) -> Any:
        """The stack after it, of the stack before."""
        value = np.asarray(operands[0])
        parts: list[Any] = [None] * self.devices.count
        for group in self.devices.groups(self.axes):
            after = _COLLECTIVES[self.name](self.params, [value[each] for each in group])
            for device, part in zip(group, after, strict=True):
                parts[device] = part
        return np.stack(parts)


def shard_map(recorder: Any, params: dict[str, Any], operands: list[Any], line: Source | None,
              scope: str, module: str) -> list[Any]:  # fmt: skip
    """Walk the program of a `shard_map`."""
    mesh = params["mesh"]
    names = tuple(str(each) for each in mesh.axis_names)
    if recorder.devices is not None:
        raise InputError("shard_map inside shard_map cannot be recorded")
    manual = params.get("newly_manual_axes", frozenset(names))
    sizes = dict(zip(names, mesh.axis_sizes, strict=True))
    if any(sizes[each] > 1 for each in names if each not in manual):
        raise InputError(
            f"shard_map over {', '.join(sorted(manual))} alone, of a mesh of {', '.join(names)}, cannot"
            " be recorded; map over all axes"
        )
    devices = Devices(sizes)
    split = []
    for each, spec in zip(operands, params["in_specs"], strict=True):
        run = partial(divide, devices, _axes_of(spec))
        op = Operation(-1, "shard", (each,), run, "operation", _spec(spec), line, module, scope,
                       is_layout=True)  # fmt: skip
        split.append(recorder.add(op, run([_value(each)])))
    recorder.devices = devices
    try:
        inner = params["jaxpr"]
        results = recorder.call(inner, split, line, scope, module)
    finally:
        recorder.devices = None
    whole = []
    for each, spec in zip(results, params["out_specs"], strict=True):
        run = partial(join, devices, _axes_of(spec))
        stacked = _value(each)
        if not hasattr(each, "index"):  # a number of the program
            stacked = np.broadcast_to(np.asarray(stacked), (devices.count, *np.shape(stacked)))
            each = recorder.leaf("constant", "constant", stacked)
        value = run([stacked])
        copied = [each for each in names if each not in _used(_axes_of(spec))]
        if copied and not _alike(devices, copied, stacked):
            recorder.program.notes.append(
                f"{line or 'shard_map'}: an output whose out_specs say {_spec(spec)} differs among the"
                f" devices along {', '.join(copied)}; JAX takes that of the first"
            )
        op = Operation(-1, "unshard", (each,), run, "operation", _spec(spec), line, module, scope)
        whole.append(recorder.add(op, value))
    return whole


def on_each(devices: Devices, run: Callable[..., Any], operands: Sequence[Any]) -> OnEach:
    """An operation as every device runs it; operands that are live are stacks."""
    return OnEach(run, devices.count, tuple(hasattr(each, "index") for each in operands))


def collective(recorder: Any, eqn: Any, operands: list[Any], line: Source | None, scope: str,
               module: str) -> list[Any] | None:  # fmt: skip
    """Record a collective, one operation for each operand; None of anything else.

    Raises:
        InputError: a collective that is not known here, or that is over groups of devices.
    """
    devices, name, params = recorder.devices, eqn.primitive.name, eqn.params
    if name == "axis_index":
        axes = _named(params["axis_name"])
        run = partial(_index, devices, axes)
        op = Operation(-1, name, (), run, "operation", ", ".join(axes), line, module, scope)
        return [recorder.add(op, run([]))]
    if name in _UNCHANGED:
        return operands
    known = name.removesuffix("_invariant")
    over = params.get("axes", params.get("axis_name"))
    if known not in _COLLECTIVES:
        return None
    axes = tuple(each for each in _named(over) if isinstance(each, str))
    if params.get("axis_index_groups") is not None:
        raise InputError(f"{line or name}: {name} over groups of devices cannot be recorded")
    run = Collective(known, dict(params), devices, axes)
    found = []
    for each in operands:
        if not hasattr(each, "index"):
            each = replicated(recorder, each)
        op = Operation(-1, known, (each,), run, "operation", f"over {', '.join(axes)}", line, module,
                       scope, extra={"axes": axes})  # fmt: skip
        found.append(recorder.add(op, run([_value(each)])))
    return found


def replicated(recorder: Any, each: Any) -> Any:
    """A constant as all devices hold it."""
    run = partial(_repeat, recorder.devices.count)
    op = Operation(-1, "broadcast", (each,), run, "operation", is_layout=hasattr(each, "index"))
    return recorder.add(op, run([_value(each)]))


def one_for_all(value: Any, line: Source | None) -> Any:
    """The number by which a branch or a loop is decided: it must be the same on every device.

    Raises:
        InputError: it is not.
    """
    flat = np.asarray(value)
    if (flat != flat[:1]).any():
        raise InputError(
            f"{line or 'shard_map'}: devices take different branches; they cannot be stacked"
        )
    return flat[0]


def divide(devices: Devices, spec: Sequence[tuple[str, ...]], operands: Sequence[Any]) -> np.ndarray:
    """The parts of a value that devices hold.

    Args:
        devices: the mesh.
        spec: of each axis of the value, the axes of the mesh over which it is split.
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
    """The value whose parts devices hold; of what several hold, the first one's."""
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
    found = np.unravel_index(device, tuple(devices.sizes.values()))
    return dict(zip(devices.sizes, map(int, found), strict=True))


def _number(devices: Devices, axes: Sequence[str], place: dict[str, int]) -> int:
    """Which part a device has of what is split over some axes."""
    number = 0
    for each in axes:
        number = number * devices.sizes[each] + place[each]
    return number


def _index(devices: Devices, axes: Sequence[str], _: Sequence[Any]) -> np.ndarray:
    found = [_number(devices, axes, _place(devices, each)) for each in range(devices.count)]
    return np.array(found, np.int32)


def _repeat(count: int, operands: Sequence[Any]) -> np.ndarray:
    return np.broadcast_to(np.asarray(operands[0]), (count, *np.shape(operands[0])))


def _alike(devices: Devices, axes: Sequence[str], stacked: np.ndarray) -> bool:
    if stacked.dtype.kind not in "fiub":
        return True
    for group in devices.groups(axes):
        apart = np.abs(stacked[group] * 1.0 - stacked[group[:1]]).max(initial=0.0)
        if apart > 1e-9 * np.abs(stacked[group]).max(initial=0.0):
            return False
    return True


def _stack(results: Sequence[Any]) -> Any:
    if all(isinstance(each, (np.ndarray, np.generic)) for each in results):
        return np.stack(results)
    import jax

    return jax.numpy.stack(results)  # keys of random generators


def _value(each: Any) -> Any:
    return each.value if hasattr(each, "index") else each


def _named(axes: Any) -> tuple[Any, ...]:
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)


def _axes_of(spec: Any) -> list[tuple[str, ...]]:
    return [() if each is None else tuple(map(str, _named(each))) for each in tuple(spec)]


def _used(axes: Sequence[tuple[str, ...]]) -> set[str]:
    return {each for over in axes for each in over}


def _spec(spec: Any) -> str:
    return str(spec).replace("PartitionSpec", "P")


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
    found = np.split(total, len(parts), axis)
    return found if params["tiled"] else [np.squeeze(each, axis) for each in found]


def _all_to_all(params: dict[str, Any], parts: Parts) -> Parts:
    """Tiled: what is not, JAX has reshaped before."""
    pieces = [np.split(each, len(parts), params["split_axis"]) for each in parts]
    return [np.concatenate([own[i] for own in pieces], params["concat_axis"]) for i in range(len(parts))]


def _permute(params: dict[str, Any], parts: Parts) -> Parts:
    found = [np.zeros_like(each) for each in parts]
    for source, target in params["perm"]:
        found[target] = parts[source]
    return found


_UNCHANGED = frozenset(["pvary", "pcast", "pbroadcast", "preduced", "vary_unreduced_cast"])
"""They change what is known of a value, not the value."""
_COLLECTIVES: dict[str, Callable[[dict[str, Any], Parts], Parts]] = {
    "psum": _total(np.sum),
    "pmax": _total(np.max),
    "pmin": _total(np.min),
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _permute,
}
