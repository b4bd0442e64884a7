"""A recorded step, run again: both programs are built anew, given the parameters and the batch of the
step, and compared as programs, so that a difference before the update has a line and a cause."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces import Event, Trace
from parity.measure.traces.record_arrays import common_parameter
from parity.verifier.recordings.pairs import layout_between
from parity.verifier.recordings.steps.names import PlaceVerdict, StepCause
from parity.verifier.report.compared import Compared
from parity.verifier.report.sides import PlaceSide
from vit_config import InputError
from vit_config.errors import USER_ERRORS

_LONGEST = 2**26
"""Most bytes of a program's source."""

NOT_RUN = "--run-programs builds and runs again the programs that the recordings name"
Axes = tuple[int, ...] | None
"""Axes that turn a parameter into the common layout; None where its name tells them."""


class Run(Protocol):
    """The comparison of two programs: `parity.verifier.compare.compare`, which is a floor above."""

    def __call__(self, a: Any, b: Any, *, names: tuple[str, str]) -> Compared:
        """Compare two programs."""
        ...


def run_again(
    a: Trace, b: Trace, step_a: int, step_b: int, stage: Stage, run: Run | None
) -> PlaceVerdict:
    """Compare the programs of two recordings on one recorded step; say why not where that cannot be.

    Args:
        stage: the stage that differs.
        run: compares them; None where the files that the recordings name may not be run.
    """
    try:
        for name, trace in (("A", a), ("B", b)):
            _check(name, trace)
        if run is None:
            return PlaceVerdict(unknown=f"no line is given: {NOT_RUN}")
        sides = [_built(trace, step) for trace, step in ((a, step_a), (b, step_b))]
        compared = run(*sides, names=("A", "B"))
    except USER_ERRORS as error:
        return PlaceVerdict(unknown=f"no line is given: {error}")
    if not compared.places:
        return PlaceVerdict(
            unknown=f"run again on the parameters and batch of the step, both programs are"
            f" {compared.headline()}: the difference is in what the loops do beside them",
            compared=compared,
        )
    causes = tuple(_causes(compared, stage))
    unknown = None if causes else "no single exchange in the programs makes them the same"
    return PlaceVerdict(causes=causes, unknown=unknown, compared=compared)


def _causes(compared: Compared, stage: Stage) -> Iterator[StepCause]:
    for place in compared.places:
        if place.cause:
            a, b = _said(place.a), _said(place.b)
            yield StepCause(place.rule, stage, (), a, b, 0.0, 0.0, 0.0)


def _said(side: PlaceSide) -> str:
    return f"{side.formula} at {side.where}" if side.where else side.formula or "nothing"


def _check(side: str, trace: Trace) -> None:
    """Refuse a program that is not known, not there or another one.

    Raises:
        InputError: says which.
    """
    program = trace.index.program
    if program is None:
        raise InputError(
            f"{side}'s recording does not say where its program is; record it with"
            " parity.record(..., program=FUNCTION), which returns the model and its inputs"
        )
    path = Path(program.file)
    if not path.is_file():
        raise InputError(f"{side}'s program is gone: no file {program.file}")
    if path.stat().st_size > _LONGEST or sha256(path.read_bytes()).hexdigest() != program.digest:
        raise InputError(f"{side}'s program was edited since it was recorded: {program.file}")


def _built(trace: Trace, step: int) -> Any:
    """Return a program as `compare` takes it, with the parameters and the batch of a step."""
    from parity.verifier.programs.build import built_by

    program = trace.index.program
    assert program is not None
    name = f"{program.file}:{program.name}"
    made = built_by(name)
    if not isinstance(made, tuple) or len(made) < 2:
        raise InputError(f"{name}: expected (model, inputs) or (module, variables, inputs)")
    known = {e.path: e for e in trace.of("parameters", step) if not e.port and e.spacing is None}
    parameters = _Parameters(name, trace, known)
    batch = [e for e in trace.of("batch", step) if e.spacing is None]
    model, *trees, inputs = made
    inputs = _of_batch(name, trace, batch, inputs, parameters)
    if _is_torch(model):
        parameters.fill_torch(model)
    elif not trees and not parameters.used:
        parameters.fill_nnx(model)
    return (model, *(parameters.tree(each) for each in trees), inputs)


def _is_torch(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


class _Parameters:
    """The parameters that a step started from, put in the place of those of the program as built."""

    def __init__(self, program: str, trace: Trace, known: dict[str, Event]) -> None:
        self._program, self._trace, self._known = program, trace, known
        self.used: set[str] = set()

    def _value(self, name: str, own: np.ndarray, axes: Axes = None) -> np.ndarray | None:
        """Return a parameter by the name that its program gives it, in its layout; None for others."""
        places = np.arange(own.size).reshape(own.shape)
        mine = name, places if axes is None else places.transpose(axes)
        for common, index in (mine, common_parameter(name, places)):
            event = self._known.get(common)
            if event is not None and event.shape == index.shape:
                self.used.add(common)
                recorded = self._trace.read(event)
                value = np.empty(own.size, recorded.dtype)
                value[index.ravel()] = recorded.ravel()
                return value.reshape(own.shape)
        return None

    def _asked(self, name: str, own: np.ndarray, axes: Axes = None) -> np.ndarray:
        value = self._value(name, own, axes)
        if value is None:
            raise InputError(
                f"{self._program}: its parameter {name} {tuple(own.shape)} was not recorded, or has"
                " another shape"
            )
        return value

    def fill_torch(self, model: Any) -> None:
        """Give a model of torch the recorded parameters."""
        import torch

        for name, own in model.named_parameters():
            array = np.ascontiguousarray(self._asked(name, own.detach().float().numpy()))
            if array.dtype.name == "bfloat16":
                array = array.astype(np.float32)
            own.data = torch.from_numpy(array.copy())
            for each in model.buffers():
                each.data = each.data.to(own.dtype) if each.is_floating_point() else each.data

    def fill_nnx(self, model: Any) -> None:
        """Give a model of NNX the recorded parameters."""
        import jax
        from flax import nnx

        from parity.measure.traces.record_jax import own_axes

        if not isinstance(model, nnx.Module):
            return
        axes, filled = own_axes(model), []
        with jax.enable_x64(True):
            for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
                name = ".".join(map(str, path))
                value = self._asked(name, np.asarray(variable[...]), axes.get(name))
                filled.append((path, variable.replace(jax.numpy.asarray(value))))
            nnx.update(model, nnx.from_flat_state(filled))

    def tree(self, tree: Any) -> Any:
        """Return a tree with the recorded parameters in the place of those that it holds."""
        import jax

        from parity.measure.traces.record_arrays import path_of

        def moved(keys: tuple[Any, ...], leaf: Any) -> Any:
            value = self._value(".".join(path_of(keys)), np.asarray(leaf))
            return leaf if value is None else value

        return jax.tree_util.tree_map_with_path(moved, tree)


def _of_batch(name: str, trace: Trace, batch: list[Event], inputs: Any, parameters: _Parameters) -> Any:
    """Return a program's inputs with the arrays of a batch in the place of those of their kind: those of
    the same name, else in order; and a tree of parameters among them with the recorded ones."""
    rest = list(batch)

    def taken(key: str, own: Any) -> Any:
        shape, kind = tuple(np.shape(own)), _kind(own)
        fits = [e for e in rest if _fits(e, shape, kind)]
        event = next((e for e in fits if e.path.rpartition(".")[2] == key), fits[0] if fits else None)
        if event is None:
            raise InputError(
                f"{name}: of the recorded batch, nothing is of the type and shape of its input"
                f" {key or 'array'}, {kind} {shape}; pass it to trace.step(...)"
            )
        rest.remove(event)
        return _like(own, trace.read(event), shape)

    if isinstance(inputs, dict):
        return {key: taken(str(key), each) for key, each in inputs.items()}
    if not isinstance(inputs, (tuple, list)):
        return taken("", inputs)
    return type(inputs)(
        taken("", each) if hasattr(each, "shape") else parameters.tree(each) for each in inputs
    )


def _kind(own: Any) -> str:
    name = str(getattr(own, "dtype", np.asarray(own).dtype)).removeprefix("torch.")
    return "float" if "float" in name else "int" if "int" in name else name


def _fits(event: Event, shape: tuple[int, ...], kind: str) -> bool:
    same = kind in event.dtype and len(event.shape) == len(shape)
    return same and (not shape or layout_between((0, *shape[1:]), (0, *event.shape[1:])) is not None)


def _like(own: Any, recorded: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Return a recorded array in the layout and the framework of a program's own."""
    axes = layout_between((0, *shape[1:]), (0, *recorded.shape[1:])) if shape else "same"
    array = recorded if axes in ("same", None) else recorded.transpose(axes)
    if type(own).__module__.partition(".")[0] != "torch":
        return np.array(array)
    import torch

    return torch.from_numpy(np.ascontiguousarray(array).copy())
