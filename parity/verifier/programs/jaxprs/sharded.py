"""A program over a mesh of devices, as one device can run it: `shard_map`, and `pmap`, which is one.

Inside, a value is the stack of what the devices hold, (devices, *local shape), devices in the order of
the mesh. Since values meet by means over their elements, a batch that is split over devices meets the
whole batch, and so does what every device holds; collectives are operations between the stacked
parts. No device is needed, emulated or real: the mesh may be a `jax.sharding.AbstractMesh`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.programs.jaxprs.exchanges import COLLECTIVES, UNCHANGED, Collective
from parity.verifier.programs.jaxprs.mesh import Devices, divide, hold_the_same, index_along, join
from parity.verifier.programs.operation import Operation, Source
from vit_config import InputError


@dataclass(frozen=True)
class OnEach:
    """An operation that every device runs on its own part."""

    run: Callable[[Sequence[Any]], Any]
    count: int
    stacked: tuple[bool, ...]
    """Which operands are stacks; the others are numbers, the same on every device."""

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the stack of the results; for several results, a list of stacks."""
        results = []
        for device in range(self.count):
            own = [x[device] if s else x for x, s in zip(operands, self.stacked, strict=True)]
            results.append(self.run(own))
        if isinstance(results[0], (list, tuple)):
            return [_stack(each) for each in zip(*results, strict=True)]
        return _stack(results)


def shard_map(recorder: Any, params: dict[str, Any], operands: list[Any], line: Source | None,
              scope: str, module: str) -> list[Any]:  # fmt: skip
    """Record the program of a `shard_map`."""
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
        if copied and not hold_the_same(devices, copied, stacked):
            recorder.program.notes.append(
                f"{line or 'shard_map'}: an output whose out_specs say {_spec(spec)} differs among the"
                f" devices along {', '.join(copied)}; JAX takes that of the first"
            )
        op = Operation(-1, "unshard", (each,), run, "operation", _spec(spec), line, module, scope)
        whole.append(recorder.add(op, value))
    return whole


def on_each(devices: Devices, run: Callable[..., Any], operands: Sequence[Any]) -> OnEach:
    """Return an operation as every device runs it; operands that are live are stacks."""
    return OnEach(run, devices.count, tuple(hasattr(each, "index") for each in operands))


def collective(recorder: Any, eqn: Any, operands: list[Any], line: Source | None, scope: str,
               module: str) -> list[Any] | None:  # fmt: skip
    """Record a collective, one operation for each operand; return None for anything else.

    Raises:
        InputError: the collective is over groups of devices (`axis_index_groups`).
    """
    devices, name, params = recorder.devices, eqn.primitive.name, eqn.params
    if name == "axis_index":
        axes = _named(params["axis_name"])
        run = partial(index_along, devices, axes)
        op = Operation(-1, name, (), run, "operation", ", ".join(axes), line, module, scope)
        return [recorder.add(op, run([]))]
    if name in UNCHANGED:
        return operands
    plain = name.removesuffix("_invariant")
    over = params.get("axes", params.get("axis_name"))
    if plain not in COLLECTIVES:
        return None
    axes = tuple(each for each in _named(over) if isinstance(each, str))
    if params.get("axis_index_groups") is not None:
        raise InputError(f"{line or name}: {name} over groups of devices cannot be recorded")
    run = Collective(plain, dict(params), devices, axes)
    results = []
    for each in operands:
        if not hasattr(each, "index"):
            each = replicated(recorder, each)
        op = Operation(-1, plain, (each,), run, "operation", f"over {', '.join(axes)}", line, module,
                       scope, extra={"axes": axes})  # fmt: skip
        results.append(recorder.add(op, run([_value(each)])))
    return results


def replicated(recorder: Any, each: Any) -> Any:
    """Record a constant as all devices hold it."""
    run = partial(_repeat, recorder.devices.count)
    op = Operation(-1, "broadcast", (each,), run, "operation", is_layout=hasattr(each, "index"))
    return recorder.add(op, run([_value(each)]))


def one_for_all(value: Any, line: Source | None) -> Any:
    """Return the number that decides on a branch or a loop; it must be the same on every device.

    Raises:
        InputError: it is not.
    """
    flat = np.asarray(value)
    if (flat != flat[:1]).any():
        raise InputError(
            f"{line or 'shard_map'}: devices take different branches; they cannot be stacked"
        )
    return flat[0]


def _repeat(count: int, operands: Sequence[Any]) -> np.ndarray:
    return np.broadcast_to(np.asarray(operands[0]), (count, *np.shape(operands[0])))


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
