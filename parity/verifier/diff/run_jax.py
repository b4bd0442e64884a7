"""Running a Flax model forward and backward, recorded.

Unlike `parity.record`, which watches somebody's program, this owns the function that is compiled: what
is seen in it is returned from it, so it is traced once and compiled once for all runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from parity.measure.nudge import nudged
from parity.measure.precision import Precision, jax_at
from parity.measure.site import Site, Stage, Where
from parity.measure.traces.record_jax import Jax
from parity.measure.traces.structure import visit_arrays
from parity.measure.traces.watch_jax import is_array, watch, watched
from parity.measure.traces.watching import facts_of, kind_of
from parity.measure.traces.writer import Writer
from parity.verifier.diff.sites_jax import Marks, play
from parity.verifier.diff.subject import Subject, named_alone
from parity.verifier.operations.jaxprs.side import arrays_of, evaluating, functional
from parity.verifier.operations.output import cotangent, main_output
from parity.verifier.operations.program import TRAINING

Sinks = dict[str, jax.Array]
"""Zeros that are added where a value is seen: the gradient of each is the one that arrives there."""


class Inputs(NamedTuple):
    """What the compiled function is given."""

    params: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def arrays(self) -> list[jax.Array]:
        """Those among the arguments; what else is given, such as flags, is a part of the program."""
        found: list[jax.Array] = []
        visit_arrays((self.args, self.kwargs), "in", is_array, lambda _, x: found.append(x))
        return found

    def filled(self, arrays: Iterator[jax.Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with others in the place of their arrays."""
        return visit_arrays((self.args, self.kwargs), "in", is_array, lambda *_: next(arrays))


class JaxRunner:
    """A model that can be run again and again on the same inputs; compiled once."""

    def __init__(self, subject: Subject, dtype: str | None, precision: Precision) -> None:
        """Prepare an NNX or Linen model, in evaluation mode.

        Args:
            dtype: what parameters and inputs are cast to; None leaves them.
            precision: of products, see `parity.measure.precision`.
        """
        self._subject = subject
        self._model = subject.model
        self.notes: tuple[str, ...] = ()
        if isinstance(subject.model, nnx.Module):
            self._model = evaluating(subject.model)
            if nnx.graphdef(self._model) != nnx.graphdef(subject.model):
                self.notes = (TRAINING,)
        self._framework = Jax(subject.model)
        self._dtype = dtype
        self._precision: Precision = precision
        self._compiled: _Compiled | None = None

    def run(self, out: Path, *, nudge: int | None = None) -> None:
        """Record one run as a trace at `out`.

        Args:
            nudge: move every parameter and input by one unit in the last place; the seed.
        """
        wide = self._dtype == "float64" or (self._dtype is None and jax.config.read("jax_enable_x64"))
        with jax.enable_x64(wide), jax_at(self._precision):
            params, call = self._functional()
            inputs = self._inputs(params, nudge)
            if self._compiled is None:
                self._compiled = _Compiled(_Traced(self._subject.model, call, inputs), inputs)
            self._write(out, inputs, self._compiled)

    def _write(self, out: Path, inputs: Inputs, compiled: _Compiled) -> None:
        framework = self._framework
        versions, precision = framework.versions(), framework.precision()
        writer = Writer(out, framework="jax", versions=versions, precision=precision)

        def log(stage: Stage, value: Any, path: str = "", port: str = "") -> None:
            for name, _, array in framework.named(stage, value):
                whole = ".".join(part for part in (path, name) if part)
                writer.add(Site(0, stage, whole, port), array)

        for path, module in compiled.modules:
            writer.module(path, kind_of(module), facts_of(framework.facts(module)))
        given = [*((str(i), x) for i, x in enumerate(inputs.args)), *inputs.kwargs.items()]
        for name, value in given:
            if is_array(value):
                log("batch", value, path=name)
        log("parameters", inputs.params)
        loss, values, arrived, gradients = compiled.run(inputs)
        arrays = [np.asarray(value) for value in values]
        for order, (where, index) in enumerate(compiled.collector.sites):
            writer.add(Site(0, "forward", *where), arrays[index])
            if (key := str(tuple(where))) in arrived:
                writer.add(Site(0, "backward", *where), np.asarray(arrived[key]), order)
        log("loss", loss, port=compiled.port)
        log("gradients", gradients)
        writer.close()

    def _inputs(self, params: Any, nudge: int | None) -> Inputs:
        subject = self._subject

        def cast(name: str, x: Any) -> jax.Array:
            array = np.asarray(x)  # cast here: JAX would compile a program for every shape
            if self._dtype and jnp.issubdtype(array.dtype, jnp.floating):
                array = array.astype(self._dtype)
            return jnp.asarray(array if nudge is None else nudged(array, nudge, name))

        return Inputs(
            jax.tree_util.tree_map_with_path(
                lambda keys, x: cast(jax.tree_util.keystr(keys), x), params
            ),
            visit_arrays(subject.args, "in", _is_any_array, cast),
            visit_arrays(dict(subject.kwargs), "in", _is_any_array, cast),
        )

    def _functional(self) -> tuple[Any, Callable[..., Any]]:
        """The parameters, and the model as a function of them and its inputs."""
        subject = self._subject
        if isinstance(subject.model, linen.Module):
            rest = {name: part for name, part in subject.variables.items() if name != "params"}

            def apply(params: Any, *args: Any, **kwargs: Any) -> Any:
                return subject.model.apply({"params": params, **rest}, *args, **kwargs)

            return subject.variables["params"], apply
        if isinstance(self._model, nnx.Module):
            graph, params, rest = nnx.split(self._model, nnx.Param, ...)
            return params, lambda params, *args, **kwargs: nnx.merge(graph, params, rest)(
                *args, **kwargs
            )
        call, held, _ = functional(subject.model)
        if held is not None:
            return held, call
        arrays, rebuild = arrays_of(subject.variables)
        alone = named_alone(arrays)  # as torch calls the parameters of its one tree
        whole = dict(zip(alone, arrays, strict=True))

        def of_trees(arrays: Any, *args: Any, **kwargs: Any) -> Any:
            given = {whole[name]: each for name, each in arrays.items()}
            return call(*rebuild(given), *args, **kwargs)

        return dict(zip(alone, arrays.values(), strict=True)), of_trees


class _Compiled:
    """The function from parameters and inputs to everything that is seen."""

    def __init__(self, traced: _Traced, inputs: Inputs) -> None:
        self.collector = _Collector()
        self.modules, self.port = traced.modules, traced.port

        def loss_fn(params: Any, sinks: Sinks, arrays: Any) -> tuple[jax.Array, list[jax.Array]]:
            self.collector.begin_trace(sinks)
            leaves = jax.tree.leaves((params, arrays))
            (output,) = play(traced.program, leaves, self.collector.tensor)
            weights = cotangent(output.shape).astype(output.dtype)
            return (output * weights).sum(), self.collector.values

        arrays = inputs.arrays()
        jax.eval_shape(loss_fn, inputs.params, {}, arrays)
        shapes = self.collector.shapes
        self._sinks = {key: jnp.asarray(np.zeros(s.shape, s.dtype)) for key, s in shapes.items()}
        step = jax.jit(jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True))
        self._step = step.lower(inputs.params, self._sinks, arrays).compile()

    def run(self, inputs: Inputs) -> tuple[jax.Array, list[jax.Array], Sinks, Any]:
        """The loss, what was seen, the gradients that arrived there, and those of the parameters."""
        (loss, values), (gradients, arrived) = self._step(inputs.params, self._sinks, inputs.arrays())
        return loss, values, arrived, gradients


class _Traced:
    """A model as a program from parameters and inputs to its main output, with marks at its modules."""

    port: str = ""

    def __init__(self, model: Any, call: Callable[..., Any], inputs: Inputs) -> None:
        marks = Marks()

        is_module = isinstance(model, (nnx.Module, linen.Module))

        def forward(params: Any, arrays: list[jax.Array]) -> jax.Array:
            args, kwargs = inputs.filled(iter(arrays))
            inner = functools.partial(call, params)
            returned = (
                inner(*args, **kwargs)
                if is_module
                else watched(inner, "", marks.begin("", model), marks, args, kwargs)
            )
            self.port, output = main_output(returned, is_array)
            return output

        with watch(model, marks) if is_module else nullcontext():
            self.program = jax.make_jaxpr(forward)(inputs.params, inputs.arrays())
        self.modules = marks.modules


class _Collector:
    """Keeps every array at the edge of a module, and makes the gradient that arrives there known."""

    def __init__(self) -> None:
        self.begin_trace({})

    def begin_trace(self, sinks: Sinks) -> None:
        """The program is traced, from the start."""
        self.sites: list[tuple[Where, int]] = []
        self.values: list[jax.Array] = []
        self.shapes: dict[str, jax.ShapeDtypeStruct] = {}
        self._sinks = sinks
        self._last: jax.Array | None = None

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Keep an array, once; what is returned stands for it in the program."""
        if self._last is not value:
            self.values.append(value)
        self.sites.append((where, len(self.values) - 1))
        key = str(tuple(where))
        if jnp.issubdtype(value.dtype, jnp.floating):
            self.shapes[key] = jax.ShapeDtypeStruct(value.shape, value.dtype)
        sink = self._sinks.get(key)
        self._last = value if sink is None else value + sink
        return self._last


def _is_any_array(value: Any) -> bool:
    return is_array(value) or isinstance(value, np.ndarray)
