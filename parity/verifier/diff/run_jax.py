"""Running a Flax model forward and backward, recorded, on its own activations or on those it is fed.

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

from parity.measure.precision import Precision, jax_at
from parity.measure.site import Site, Stage, Where
from parity.measure.traces.record_jax import Jax
from parity.measure.traces.structure import visit_arrays
from parity.measure.traces.watch_jax import is_array, watch, watched
from parity.measure.traces.watching import facts_of, kind_of
from parity.measure.traces.writer import Writer
from parity.verifier.diff.feed import Feed
from parity.verifier.diff.nudge import nudged
from parity.verifier.diff.sites_jax import Marks, play
from parity.verifier.diff.subject import TRAINING, Subject
from parity.verifier.operations.jaxprs.side import arrays_of, functional
from parity.verifier.operations.output import cotangent, main_output

Fed = dict[str, jax.Array]
"""What is fed, by stage and place."""


class Inputs(NamedTuple):
    """What the compiled function is given."""

    params: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    fed: Fed

    def arrays(self) -> list[jax.Array]:
        """Those among the arguments; what else is given, such as flags, is a part of the program."""
        found: list[jax.Array] = []
        visit_arrays((self.args, self.kwargs), "in", is_array, lambda _, x: found.append(x))
        return found

    def filled(self, arrays: Iterator[jax.Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with others in the place of their arrays."""
        return visit_arrays((self.args, self.kwargs), "in", is_array, lambda *_: next(arrays))


class JaxRunner:
    """A model that can be run again and again on the same inputs; compiled once, and once to be fed."""

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
            self._model = nnx.clone(subject.model)
            self._model.eval()
            if nnx.graphdef(self._model) != nnx.graphdef(subject.model):
                self.notes = (TRAINING,)
        self._framework = Jax(subject.model)
        self._dtype = dtype
        self._precision: Precision = precision
        self._traced: _Traced | None = None
        self._compiled: dict[bool, _Compiled] = {}

    def run(self, out: Path, *, feed: Feed | None = None, nudge: int | None = None) -> None:
        """Record one run as a trace at `out`.

        Args:
            nudge: move every parameter and input by one unit in the last place; the seed.
        """
        wide = self._dtype == "float64" or (self._dtype is None and jax.config.read("jax_enable_x64"))
        with jax.enable_x64(wide), jax_at(self._precision):
            params, call = self._functional()
            inputs = self._inputs(params, feed, nudge)
            fed = bool(inputs.fed)
            if fed not in self._compiled:
                self._traced = self._traced or _Traced(self._subject.model, call, inputs)
                self._compiled[fed] = _Compiled(self._traced, inputs)
            self._write(out, inputs, self._compiled[fed])

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

    def _inputs(self, params: Any, feed: Feed | None, nudge: int | None) -> Inputs:
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
            {} if feed is None else _arrays(feed),
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
        return arrays, lambda arrays, *args, **kwargs: call(*rebuild(arrays), *args, **kwargs)


class _Compiled:
    """The function from parameters, inputs and what is fed to everything that is seen."""

    def __init__(self, traced: _Traced, inputs: Inputs) -> None:
        self.collector = _Collector()
        self.modules, self.port = traced.modules, traced.port

        def loss_fn(params: Any, sinks: Fed, arrays: Any, fed: Fed) -> tuple[jax.Array, list[jax.Array]]:
            self.collector.begin_trace(fed, sinks)
            leaves = jax.tree.leaves((params, arrays))
            (output,) = play(traced.program, leaves, self.collector.tensor)
            weights = cotangent(output.shape).astype(output.dtype)
            return (output * weights).sum(), self.collector.values

        arrays = inputs.arrays()
        jax.eval_shape(loss_fn, inputs.params, {}, arrays, inputs.fed)
        # differentiated along with the parameters, a sink gets the gradient that arrives where it is
        shapes = self.collector.shapes
        self._sinks = {key: jnp.asarray(np.zeros(s.shape, s.dtype)) for key, s in shapes.items()}
        step = jax.jit(jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True))
        self._step = step.lower(inputs.params, self._sinks, arrays, inputs.fed).compile()

    def run(self, inputs: Inputs) -> tuple[jax.Array, list[jax.Array], Fed, Any]:
        """The loss, what was seen, the gradients that arrived there, and those of the parameters."""
        (loss, values), (gradients, arrived) = self._step(
            inputs.params, self._sinks, inputs.arrays(), inputs.fed
        )
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
    """Keeps every array at the edge of a module, and passes on what the reference had there."""

    def __init__(self) -> None:
        self.begin_trace({}, {})

    def begin_trace(self, fed: Fed, sinks: Fed) -> None:
        """The program is traced, from the start."""
        self.sites: list[tuple[Where, int]] = []
        self.values: list[jax.Array] = []
        self.shapes: dict[str, jax.ShapeDtypeStruct] = {}
        self._fed, self._sinks = fed, sinks
        self._last: jax.Array | None = None

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Keep an array, once; exchange the values in both directions."""
        if self._last is not value:
            self.values.append(value)
        self.sites.append((where, len(self.values) - 1))
        key = str(tuple(where))
        if jnp.issubdtype(value.dtype, jnp.floating):
            self.shapes[key] = jax.ShapeDtypeStruct(value.shape, value.dtype)
        fed, gradient = (self._fed.get(f"{stage} {key}") for stage in ("forward", "backward"))
        value = _pass_on(value, self._sinks.get(key), fed, gradient)
        self._last = value if fed is None else None  # what was fed is another array than the one kept
        return value


def _pass_on(
    x: jax.Array, sink: jax.Array | None, value: jax.Array | None, gradient: jax.Array | None
) -> jax.Array:
    """An array that differentiation takes for `x`: with other values, passing another gradient on; the
    one that arrives is the gradient of `sink`."""
    if sink is None:
        return x if value is None else value.astype(x.dtype)

    @jax.custom_vjp
    def exchange(x: jax.Array, sink: jax.Array, value: Any, gradient: Any) -> jax.Array:
        return x if value is None else value.astype(x.dtype)

    def forward(x: jax.Array, sink: jax.Array, value: Any, gradient: Any) -> tuple[jax.Array, Any]:
        return exchange(x, sink, value, gradient), (value, gradient)

    def backward(kept: Any, arrived: jax.Array) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, kept)
        gradient = kept[1]
        passed = arrived if gradient is None else gradient.astype(arrived.dtype)
        return (passed, arrived, *zeros)

    exchange.defvjp(forward, backward)
    return exchange(x, sink, value, gradient)


def _arrays(feed: Feed) -> Fed:
    stages: tuple[Stage, ...] = ("forward", "backward")
    return {
        f"{stage} {tuple(where)}": jnp.asarray(array)
        for where in feed.sites
        for stage in stages
        if (array := feed.value(stage, Where(*where))) is not None
    }


def _is_any_array(value: Any) -> bool:
    return is_array(value) or isinstance(value, np.ndarray)
