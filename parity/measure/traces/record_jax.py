"""Recording a Flax program; values inside compiled functions come out through callbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from parity.measure.precision import jax_precision
from parity.measure.site import Stage, Where
from parity.measure.traces.record_arrays import (
    PlainArrays,
    common_parameter,
    key_name,
    named_leaves,
    path_of,
)
from parity.measure.traces.recorder import OPTIMIZER, Recorder
from parity.measure.traces.sample import Sample, sample
from parity.measure.traces.watch_jax import is_array, watch
from parity.measure.traces.watching import drops
from parity.measure.versions.of_flax import LOOP_ON_TRIAL
from parity.measure.versions.of_jax import purposes


class Jax(PlainArrays):
    """An NNX or Linen model and, perhaps, its `nnx.Optimizer`."""

    name: Literal["torch", "jax", ""] = "jax"

    def __init__(
        self,
        model: nnx.Module | linen.Module,
        optimizer: nnx.Optimizer | None = None,
    ) -> None:
        """Prepare a model."""
        self._model = model
        self._tap: _Tap | None = None
        self._optimizer = optimizer
        self._axes = own_axes(model)
        self._is_tree: bool | None = None
        """Whether the parameters can be found by flattening the model; None if that is not known yet."""

    def versions(self) -> dict[str, str]:
        """Return the versions of JAX and Flax, and the device they compute on."""
        device = jax.devices()[0].device_kind
        return {"jax": jax.__version__, "flax": flax.__version__, "device": device}

    def precision(self) -> dict[str, str]:
        """Return the flags of JAX."""
        return jax_precision()

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the modules of an NNX model; a Linen model has none before it is called."""
        if isinstance(self._model, nnx.Module):
            for path, module in nnx.iter_modules(self._model):
                yield ".".join(map(str, path)), module

    def facts(self, module: Any) -> dict[str, Any]:
        """Return the attributes of a module."""
        return {name: value for name, value in vars(module).items() if name not in ("parent", "name")}

    @contextmanager
    def watch(self, recorder: Recorder) -> Iterator[None]:
        """Watch what the model returns, active dropout, and the gradients that an `nnx.Optimizer` is
        given."""
        self._tap = _Tap(recorder)
        with ExitStack() as stack:
            if self._optimizer is not None:
                recorder.describe(OPTIMIZER, self._optimizer, {})
                stack.enter_context(self._watch_update(type(self._optimizer), self._tap))
            stack.enter_context(watch(self._model, self._tap))
            yield

    @contextmanager
    def _watch_update(self, kind: type[nnx.Optimizer], tap: _Tap) -> Iterator[None]:
        """Wrap ``update`` of the optimiser's class: a compiled function has another instance."""
        replaced, original = vars(kind).get("update"), kind.update

        def update(optimizer: nnx.Optimizer, model: Any, gradients: Any, **kwargs: Any) -> Any:
            leaves = jax.tree_util.tree_flatten_with_path(gradients)[0]
            named = [self._common(path_of(keys), leaf) for keys, leaf in leaves if is_array(leaf)]
            tap.report([("gradients", Where(name, "", 0)) for name, _ in named], [x for _, x in named])
            return original(optimizer, model, gradients, **kwargs)

        kind.update = update  # type: ignore[method-assign]
        try:
            yield
        finally:
            if replaced is None:
                del kind.update
            else:
                kind.update = replaced  # type: ignore[method-assign]

    def begin_step(self, recorder: Recorder) -> None:
        """Record the parameters that the step starts from, if there is an optimiser."""
        jax.effects_barrier()  # earlier computations are not of this step
        if self._optimizer is not None:
            recorder.log("parameters", self._parameters())

    def end_step(self, recorder: Recorder) -> None:
        """Wait for running computations; record moments and parameters, if there is an optimiser."""
        self._settle()
        if self._optimizer is not None:
            recorder.log("moments", self._optimizer.opt_state)
            recorder.log("updated", self._parameters())

    def abandon_step(self, recorder: Recorder) -> None:
        """Record what was computed until then."""
        with suppress(Exception):  # the exception that ended the step is raised
            self._settle()

    def _parameters(self) -> Any:
        """Return the parameters by name, each once. `nnx.state` takes ten times as long, but finds
        parameters that no tree leads to."""
        variables: dict[int, tuple[str, nnx.Variable]] = {}
        is_variable = lambda node: isinstance(node, nnx.Variable)  # noqa: E731
        for keys, leaf in jax.tree_util.tree_flatten_with_path(self._model, is_leaf=is_variable)[0]:
            if isinstance(leaf, nnx.Param):
                variables.setdefault(id(leaf), (".".join(map(key_name, keys)), leaf))
        if self._is_tree is None:
            self._is_tree = len(variables) == len(nnx.to_flat_state(nnx.state(self._model, nnx.Param)))
        return dict(variables.values()) if self._is_tree else nnx.state(self._model, nnx.Param)

    def _settle(self) -> None:
        jax.effects_barrier()
        if self._tap is not None:
            self._tap.settle()

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample]]:
        """Yield the leaves of a tree by common names in the common layout; moments are found in any
        state of optax."""
        if isinstance(value, (nnx.Module, nnx.Optimizer)):
            value = nnx.state(value)
        kinds = (np.ndarray, np.generic, int, float)
        leaves = [
            each
            for each in named_leaves(stage, value)
            if is_array(each[2]) or isinstance(each[2], kinds)
        ]
        for _, _, leaf in leaves:
            if is_array(leaf):
                leaf.copy_to_host_async()
        for path, port, leaf in leaves:
            name, array = self._common(path, np.asarray(leaf))
            yield name, port, array

    def _common(self, path: tuple[str, ...], array: Any) -> tuple[str, Any]:
        name = ".".join(path)
        if name in self._axes:
            axes = self._axes[name]
            return name, array if axes is None else array.transpose(axes)
        return common_parameter(name, array)


def own_axes(model: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the axes of the parameters of this project's twin by name; none for other models."""
    from vit_jax import ViT
    from vit_jax.leaves import leaves

    return {leaf.name: leaf.axes for leaf in leaves(model)} if isinstance(model, ViT) else {}


_Spot = tuple[Stage, Where]


class _Tap:
    """Tap that records what the model returns, and what modules of dropout are given and return."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._error: Exception | None = None
        self._arrived: list[tuple[int, int, Stage, Where, Sample]] = []
        """Call, place in the order of tracing, and what was computed there; appended from any thread."""
        self._calls: Counter[_Spot] = Counter()
        self._order = 0
        """Number of places traced so far: values arrive in no particular order."""
        self._dropping: dict[str, Any] = {}
        """Modules of dropout that run, with what each was given."""

    def begin(self, path: str, module: Any) -> int:
        """Begin a call of a module; return 0: the recording numbers the calls."""
        self._recorder.describe_module(path, module)
        if path and drops(module):
            self._dropping[path] = None
        return 0

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Report an array of interest when it is computed; return it."""
        if LOOP_ON_TRIAL in purposes(value):
            return value
        if where.path in self._dropping:
            given = self._dropping[where.path]
            if where.port == "in":
                self._dropping[where.path] = value
            elif where.port == "out" and given is not None and given is not value:
                spots: list[_Spot] = [("forward", where._replace(port=port)) for port in ("in", "out")]
                self.report(spots, [given, value])
        elif not where.path and where.port.startswith("out"):
            self.report([("forward", where)], [value])
        return value

    def end(self, path: str) -> None:
        """End a call of a module."""
        self._dropping.pop(path, None)

    def report(self, spots: Sequence[_Spot], values: Sequence[jax.Array]) -> None:
        """Hand over the kept elements of some values when they are computed."""
        parts = [sample(value, self._recorder.keep) for value in values]
        known = [part._replace(values=None) for part in parts]  # no traced values in compiled programs
        order, self._order = self._order, self._order + len(parts)
        _report([part.values for part in parts], lambda arrays: self._note(order, spots, known, arrays))

    def _note(
        self, order: int, spots: Sequence[_Spot], known: list[Sample], arrays: list[np.ndarray]
    ) -> None:
        """Keep computed values; errors are raised where the step ends, not in compiled code."""
        if not self._recorder.running or self._error is not None:
            return
        try:
            for place, (spot, part, array) in enumerate(zip(spots, known, arrays, strict=True), order):
                self._calls[spot] += 1
                own = part._replace(values=array.copy(), owned=True)
                self._arrived.append((self._calls[spot], place, *spot, own))
        except Exception as error:
            self._error = error

    def settle(self) -> None:
        """Record the values that arrived in this step."""
        arrived, self._arrived = self._arrived, []
        self._calls.clear()
        by_hand = {"gradients"} if self._recorder.logged("gradients") else set()
        for _, _, stage, where, part in sorted(arrived, key=lambda each: each[:2]):
            if stage not in by_hand:
                self._recorder.add(stage, where.path, where.port, part)
        error, self._error = self._error, None
        if error is not None:
            raise error


def _report(values: Sequence[jax.Array], seen: Callable[[list[np.ndarray]], None]) -> None:
    """Pass values to `seen` whenever they are computed, in compiled code too; to be copied if kept.

    Types of 64 bits travel as bytes: the callback runs in a thread of its own, where they are cut
    to 32 bits unless they are enabled for the whole program.
    """
    about = [(value.shape, value.dtype) for value in values]
    wide = [dtype.itemsize >= 8 and dtype.kind in "fiu" for _, dtype in about]

    def receive(*raw: Any) -> None:
        arrays = [np.asarray(each) for each in raw]
        seen([
            each.reshape(-1).view(dtype).reshape(shape) if cut else each
            for each, (shape, dtype), cut in zip(arrays, about, wide, strict=True)
        ])  # fmt: skip

    sent = zip(values, wide, strict=True)
    jax.debug.callback(
        receive, *(jax.lax.bitcast_convert_type(x, jnp.uint8) if cut else x for x, cut in sent)
    )
