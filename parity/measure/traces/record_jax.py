"""Recording a Flax program; values inside compiled functions come out through callbacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import flax
import jax
import numpy as np
from flax import linen, nnx

from parity.measure.precision import jax_precision
from parity.measure.site import Stage, Where
from parity.measure.traces.common_jax import common_parameter
from parity.measure.traces.pool import SMALL, FixedPool, Pooled
from parity.measure.traces.record_arrays import PlainArrays
from parity.measure.traces.recorder import OPTIMIZER, Recorder
from parity.measure.traces.sample import Sample, sample
from parity.measure.traces.tap_jax import JaxTap
from parity.measure.traces.trees import key_name, named_leaves, path_of
from parity.measure.traces.watch_jax import is_array, side_by_side, watch

_Place = tuple[int, int, tuple[int, ...], tuple[int, ...] | None]
"""The row of numbers that holds a sample, its first index there, and its tensor's shape and spacing."""

_Program = tuple[Callable[[list[jax.Array]], list[jax.Array]], list[str], list[_Place]]
"""A function from leaves to rows of numbers, the names of the leaves, and where each leaf is."""


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
        self._tap: JaxTap | None = None
        self._optimizer = optimizer
        self._axes = _own_axes(model)
        self._is_tree: bool | None = None
        """Whether the parameters can be found by flattening the model; None if that is not known yet."""
        self._keep: int | None = None
        self._programs: dict[Any, _Program] = {}

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
        """Watch the modules, and the gradients that an `nnx.Optimizer` is given."""
        self._tap = JaxTap(recorder)
        self._keep = recorder.keep
        with ExitStack() as stack:
            if self._optimizer is not None:
                recorder.describe(OPTIMIZER, self._optimizer, {})
                stack.enter_context(self._watch_update(type(self._optimizer), recorder, self._tap))
            stack.enter_context(watch(self._model, self._tap))
            yield

    @contextmanager
    def _watch_update(
        self, kind: type[nnx.Optimizer], recorder: Recorder, tap: JaxTap
    ) -> Iterator[None]:
        """Wrap ``update`` of the optimiser's class: a compiled function has another instance."""
        replaced, original = vars(kind).get("update"), kind.update

        def update(optimizer: nnx.Optimizer, model: Any, gradients: Any, **kwargs: Any) -> Any:
            tap.begin_run()
            for keys, leaf in jax.tree_util.tree_flatten_with_path(gradients)[0]:
                if not is_array(leaf):
                    continue
                name, gradient = self._common(path_of(keys), leaf)
                source = tap.source("gradients", Where(name, "", 0), recorder.next_order(), leaf)
                tap.report(source, recorder.sample(gradient), waits=True)
            tap.end_run()
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

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Pooled]]:
        """Yield the leaves of a tree; moments are found in any state of optax."""
        if isinstance(value, (nnx.Module, nnx.Optimizer)):
            value = nnx.state(value)
        kinds = (np.ndarray, np.generic, int, float)
        leaves = named_leaves(stage, value)
        yield from self._gather(
            (p, o, leaf) for p, o, leaf in leaves if is_array(leaf) or isinstance(leaf, kinds)
        )

    def _gather(
        self, leaves: Iterable[tuple[tuple[str, ...], str, Any]]
    ) -> Iterator[tuple[str, str, np.ndarray | Pooled]]:
        """Yield leaves by common names in the common layout; small ones leave the device together."""
        leaves = list(leaves)
        places: dict[Any, list[int]] = defaultdict(list)
        for i, (_, _, leaf) in enumerate(leaves):
            if is_array(leaf) and self._is_small(leaf):
                places[frozenset(leaf.sharding.device_set)].append(i)
        parts: dict[int, tuple[str, Pooled]] = {}
        for there in places.values():
            paths = tuple(leaves[i][0] for i in there)
            parts.update(zip(there, self._sampled(paths, [leaves[i][2] for i in there]), strict=True))
        for i, (path, port, leaf) in enumerate(leaves):
            name, array = parts.get(i) or self._common(path, np.asarray(leaf))
            yield name, port, array

    def _is_small(self, leaf: jax.Array) -> bool:
        count = leaf.size if self._keep is None else min(leaf.size, self._keep)
        # JAX would cut types wider than it has enabled; and other hosts may not take part
        same = leaf.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype)
        return count <= SMALL and same and leaf.is_fully_addressable

    def _sampled(
        self, paths: tuple[tuple[str, ...], ...], leaves: list[jax.Array]
    ) -> list[tuple[str, Pooled]]:
        """Return the common name and sample of each leaf, by one program compiled for all of them."""
        key = paths, tuple((leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves)
        if key not in self._programs:
            self._programs[key] = self._program(paths, leaves)
        program, names, places = self._programs[key]
        flats = [FixedPool(np.asarray(numbers)) for numbers in program(leaves)]
        return [
            (name, Pooled(flats[which], begin, shape, spacing))
            for name, (which, begin, shape, spacing) in zip(names, places, strict=True)
        ]

    def _program(self, paths: tuple[tuple[str, ...], ...], leaves: list[jax.Array]) -> _Program:
        names: list[str] = []
        by_leaf: dict[int, _Place] = {}

        def gather(leaves: list[jax.Array]) -> list[jax.Array]:
            common = [self._common(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
            names.extend(name for name, _ in common)
            samples = [sample(array, self._keep) for _, array in common]
            flats = []
            for places, begins, numbers in side_by_side([each.values for each in samples]):
                for i, begin in zip(places, begins, strict=True):
                    by_leaf[i] = len(flats), begin, samples[i].shape, samples[i].spacing
                flats.append(numbers)
            return flats

        program = jax.jit(gather).lower(leaves).compile()
        return program, names, [by_leaf[i] for i in range(len(leaves))]

    def _common(self, path: tuple[str, ...], array: Any) -> tuple[str, Any]:
        name = ".".join(path)
        if name in self._axes:
            axes = self._axes[name]
            return name, array if axes is None else array.transpose(axes)
        return common_parameter(name, array)


def _own_axes(model: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the axes of the parameters of this project's twin by name; none for other models."""
    from vit_jax import ViT
    from vit_jax.leaves import leaves

    return {leaf.name: leaf.axes for leaf in leaves(model)} if isinstance(model, ViT) else {}
