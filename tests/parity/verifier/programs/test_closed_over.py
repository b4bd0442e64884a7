"""Gradients by the arrays that a JAX function uses without being given them."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from parity.verifier.compare import compare
from parity.verifier.programs.backward import record_gradients
from parity.verifier.programs.methods import closed_over
from parity.verifier.programs.sides import taken_apart

D, H = 4, 6
draw = np.random.default_rng(0)
SHAPES = {"w0": (D, H), "b0": (H,), "w1": (H, D), "w2": (D, H), "b2": (H,), "w3": (H, D), "scale": ()}
ARRAYS = {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
X = draw.normal(size=(3, D)).astype(np.float32)
OF_JAX = {name: jnp.asarray(each) for name, each in ARRAYS.items()}


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, each in ARRAYS.items():
            setattr(self, name, torch.nn.Parameter(torch.tensor(each)))

    def forward(self, x):
        p: Any = self
        x = x + torch.tanh(x @ p.w0 + p.b0) @ p.w1
        return (x + torch.tanh(x @ p.w2 + p.b2) @ p.w3) * torch.exp(p.scale)


def blocks(p, x, tanh=jnp.tanh):
    x = x + tanh(x @ p["w0"] + p["b0"]) @ p["w1"]
    return (x + tanh(x @ p["w2"] + p["b2"]) @ p["w3"]) * jnp.exp(p["scale"])


def of_the_file(x):
    return blocks(OF_JAX, x)


def of_numpy(x):
    return blocks(ARRAYS | {"scale": OF_JAX["scale"]}, x)


class Holder:
    """A class of a user's own, with its arrays in objects of objects."""

    def __init__(self, arrays):
        self.parts = [{"inner": [arrays]}]

    def __call__(self, x):
        return blocks(self.parts[0]["inner"][0], x)


@dataclass(frozen=True)
class Module:
    """Made like a module of Equinox: a dataclass, which JAX knows as a tree."""

    arrays: Any

    def __call__(self, x):
        return blocks(self.arrays, x)


jax.tree_util.register_dataclass(Module, ["arrays"], [])


@jax.custom_vjp
def tanh(x):
    return jnp.tanh(x)


tanh.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda t, g: (g * (1 - t * t),))


def in_a_loop(x):
    first = (OF_JAX["w0"], OF_JAX["b0"], OF_JAX["w1"])
    rows = jax.tree.map(lambda *each: jnp.stack(each), first, (OF_JAX["w2"], OF_JAX["b2"], OF_JAX["w3"]))

    @jax.checkpoint
    def step(x, row):
        w, b, u = row
        return x + jnp.tanh(x @ w + b) @ u, None

    return jax.lax.scan(step, x, rows)[0] * jnp.exp(OF_JAX["scale"])


def in_a_branch(x):
    return jax.lax.cond(x.sum() < 1e9, of_the_file, lambda x: x, x)


def variables():
    held = {name: nnx.Param(each) for name, each in OF_JAX.items()}
    return lambda x: blocks({name: each[...] for name, each in held.items()}, x)


HOLDERS = {
    "file": of_the_file,
    "numpy": of_numpy,
    "jit": jax.jit(of_the_file),
    "vmap of a tree": jax.vmap(Module(OF_JAX)),
    "function of vmap": lambda x: jax.vmap(Module(OF_JAX))(x),
    "object": Holder(OF_JAX),
    "jit of an object": jax.jit(Holder(OF_JAX)),
    "partial in a function": (lambda f: lambda x: f(x))(functools.partial(blocks, OF_JAX)),
    "custom rule": lambda x: blocks(OF_JAX, x, tanh),
    "loop": in_a_loop,
    "branch": in_a_branch,
    "variables of NNX": variables(),
}


@pytest.mark.parametrize("function", HOLDERS.values(), ids=list(HOLDERS))
def test_what_a_function_closes_over_gets_gradients(function):
    compared = compare((Reference(), torch.from_numpy(X)), (function, jnp.asarray(X)))
    assert compared.verdict == "EQUAL"
    assert compared.backward is not None
    assert compared.backward.counts.outputs == len(ARRAYS) + 1  # and the input
    assert not compared.backward.counts.outputs_left_out
    assert not compared.backward.types  # the arrays are in float32, the gradients are not


def test_a_gradient_that_stops_in_a_closure_is_a_difference():
    p = OF_JAX
    stopped = lambda x: blocks(p | {"w0": jax.lax.stop_gradient(p["w0"])}, x)  # noqa: E731
    compared = compare((lambda x: blocks(p, x), X), (stopped, X))
    assert (compared.verdict, compared.causes[:1]) == ("DIFFERENT", ("detached",))


def test_gradients_have_the_paths_of_their_arrays():
    given = taken_apart((Holder(OF_JAX), jnp.asarray(X)), "B")
    program = record_gradients(given, [(0, np.ones((3, D)))], "B")
    paths = [f"gradient.parts.0.inner.0.{name}" for name in sorted(ARRAYS)]
    assert [path for path, _ in program.outputs if "parts" in path] == paths
    leaves = {op.label for op in program.operations if op.kind == "parameter"}
    assert leaves == {path.removeprefix("gradient.") for path in paths}


def test_an_array_that_only_a_rule_without_derivative_reads_has_no_gradient():
    @jax.custom_vjp
    def shifted(x):
        return x @ OF_JAX["w0"]

    shifted.defvjp(lambda x: (shifted(x), None), lambda _, g: (g @ OF_JAX["w0"].T,))
    given = taken_apart((lambda x: shifted(x) @ OF_JAX["w1"], jnp.asarray(X)), "B")
    program = record_gradients(given, [(0, np.ones((3, D)))], "B")
    ends = sorted(path.rpartition(".")[2] for path, _ in program.outputs)
    assert ends == ["argument 2", "w1"]


class TorchHolder:
    """A class of a user's own that holds tensors."""

    def __init__(self):
        self.tensors = {name: torch.tensor(each) for name, each in ARRAYS.items()}

    def __call__(self, x):
        p = self.tensors
        x = x + torch.tanh(x @ p["w0"] + p["b0"]) @ p["w1"]
        return (x + torch.tanh(x @ p["w2"] + p["b2"]) @ p["w3"]) * torch.exp(p["scale"])


def called_with_others():
    """A module that is called with other tensors than its own."""
    module, tensors = Reference(), TorchHolder().tensors
    return lambda x: torch.func.functional_call(module, tensors, (x,))


OF_TORCH = {
    "object": TorchHolder(),
    "vmap": torch.vmap(TorchHolder()),
    "module in a function": (lambda module: lambda x: module(x))(Reference()),
    "other tensors": called_with_others(),
}


@pytest.mark.parametrize("function", OF_TORCH.values(), ids=list(OF_TORCH))
def test_what_a_function_of_torch_closes_over_gets_gradients(function):
    compared = compare((function, torch.from_numpy(X)), (of_the_file, jnp.asarray(X)))
    assert compared.verdict == "EQUAL"
    assert compared.backward is not None
    assert compared.backward.counts.outputs == len(ARRAYS) + 1
    assert not compared.backward.counts.outputs_left_out


@pytest.mark.parametrize(
    ("model", "width", "count"),
    [(Module(OF_JAX), D, len(ARRAYS) + 1), (nnx.Linear(D, H, rngs=nnx.Rngs(0)), H, 3)],
    ids=["tree", "NNX"],
)
def test_what_a_model_is_given_is_no_second_leaf(model, width, count):
    given = taken_apart((model, jnp.asarray(X)), "B")
    program = record_gradients(given, [(0, np.ones((3, width)))], "B")
    assert len(program.outputs) == count
    leaves = [op for op in program.operations if op.run is None and op.label != "constant"]
    assert len(leaves) == count


class Variable:
    """Like a variable of Keras, whose package no test needs."""

    __module__ = "keras.src.variables"

    def __init__(self, value, path, trainable):
        self.value, self.path, self.trainable = value, path, trainable
        self.shape, self.dtype = value.shape, value.dtype


class Layer:
    """Like a layer of Keras, which knows its variables."""

    __module__ = "keras.src.layers"

    def __init__(self):
        self._all = {
            "w": Variable(OF_JAX["w0"], "dense/kernel", trainable=True),
            "mean": Variable(jnp.zeros(H), "norm/mean", trainable=False),
        }
        self.variables = list(self._all.values())

    def __call__(self, x):
        return x @ self._all["w"].value - self._all["mean"].value


def with_statistics():
    held = {"kernel": nnx.Param(OF_JAX["w0"]), "mean": nnx.BatchStat(jnp.zeros(H))}
    return lambda x: x @ held["kernel"][...] - held["mean"][...]


@pytest.mark.parametrize(
    ("function", "path"), [(Layer(), "dense.kernel"), (with_statistics(), "held.kernel")]
)
def test_variables_that_nobody_trains_get_no_gradients(function, path):
    given = taken_apart((function, jnp.asarray(X)), "B")
    program = record_gradients(given, [(0, np.ones((3, H)))], "B")
    assert [name for name, _ in program.outputs if "inputs" not in name] == [f"gradient.{path}"]


TENSOR, ARRAY = torch.ones(2), np.ones(2)


def test_tensors_and_modules_that_a_function_uses_are_named():
    layer, shift = torch.nn.Linear(2, 2), 3
    assert sorted(closed_over(lambda x: layer(x) + TENSOR + ARRAY.sum() + shift)) == ["TENSOR", "layer"]
