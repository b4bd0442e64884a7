"""Models that are given in training mode: what is on then, where it was built, and that it is off."""

import functools

import numpy as np
import pytest
import torch
from flax import nnx

from parity.verifier.compare import compare
from parity.verifier.programs.built import watch_building
from parity.verifier.programs.program import TRAINING
from parity.verifier.programs.sides import record

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
GIVEN = torch.from_numpy(X)


class Port(nnx.Module):
    def __init__(self, rate=0.5):
        rngs = nnx.Rngs(0)
        self.head, self.drop = nnx.Linear(6, 3, rngs=rngs), nnx.Dropout(rate, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)

    def __call__(self, x):
        return self.head(self.drop(self.norm(x)))


class Net(torch.nn.Module):
    def __init__(self, rate=0.1):
        super().__init__()
        self.drops = torch.nn.Sequential(*(torch.nn.Dropout(rate) for _ in range(5)))
        self.norm, self.head = torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.drops(self.norm(x)))


def called(model, x):
    return model(x)


def held(make, x):
    """The ways in which a function is given a model."""
    model = make()
    return {
        "module": model,
        "closure": lambda x: model(x),
        "partial": functools.partial(called, make()),
        "partial of a tree": functools.partial(lambda models, x: models["a"](x), {"a": make()}),
    }


OF_NNX = held(Port, X) | {"cached": nnx.cached_partial(nnx.jit(called), Port())}


@pytest.mark.parametrize("given", OF_NNX.values(), ids=list(OF_NNX))
def test_layers_of_nnx_that_are_on_are_named_and_off(given):
    program = record((given, X), "B")
    assert [text.split(" (")[0] for text in program.trained] == ["dropout", "batch norm"]
    assert not program.draws
    reference = Port()
    reference.eval()
    assert compare((reference, X), (given, X)).verdict == "EQUAL"  # with the gradients


OF_TORCH = held(Net, GIVEN)


@pytest.mark.parametrize("given", OF_TORCH.values(), ids=list(OF_TORCH))
def test_layers_of_torch_that_are_on_are_named_and_off(given):
    program = record((given, GIVEN), "B")
    assert [text.endswith("; 5 times)") for text in program.trained] == [True, False]
    assert program.trained[1].startswith("batch norm (")
    assert not program.draws
    compared = compare((given, GIVEN), (given, GIVEN))
    assert compared.verdict == "EQUAL"
    assert not any("draws" in each for each in compared.remarks)


def test_a_layer_is_named_by_the_line_that_built_it():
    with watch_building():
        models = Port(), Net()
    line = Port.__init__.__code__.co_firstlineno + 2
    assert record((models[0], X), "B").trained[0] == f"dropout (0.5, test_training.py:{line})"
    line = Net.__init__.__code__.co_firstlineno + 2
    program = record((models[1], GIVEN), "B")
    assert program.trained[0] == f"dropout (0.1, test_training.py:{line}; 5 times)"
    (note,) = program.notes
    on = f"as it was given, these are on: drops.0 (Dropout, 0.1, test_training.py:{line}), drops.1 ("
    assert note.startswith(f"{TRAINING}; {on}")
    assert note.endswith(" and 3 more")


def test_a_mode_that_changes_nothing_is_noted_alone():
    plain = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.0))
    program = record((plain, GIVEN), "A")
    assert (program.notes, program.trained) == ([TRAINING], [])
    assert plain.training
    program = record((plain.eval(), GIVEN), "A")
    assert (program.notes, program.trained) == ([], [])


class Scanned(nnx.Module):
    """Layers under `nnx.scan`, each with a stream of random numbers."""

    def __init__(self, layers=3):
        @nnx.split_rngs(splits=layers)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs):
            return nnx.Sequential(nnx.Linear(6, 6, rngs=rngs), nnx.Dropout(0.1, rngs=rngs), nnx.tanh)

        self.blocks = make(nnx.Rngs(0))

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def step(x, block):
            return x + block(x)

        return step(x, self.blocks)


def test_layers_under_a_scan_with_dropout_are_differentiated():
    model = Scanned()
    linear = model.blocks.layers[0]
    linear.bias[...] = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    weight, bias = np.asarray(linear.kernel[...]), np.asarray(linear.bias[...])
    linears = [torch.nn.Linear(6, 6) for _ in weight]
    for each, w, b in zip(linears, weight, bias, strict=True):
        each.weight.data, each.bias.data = torch.tensor(w.T), torch.tensor(b)

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(linears)

        def forward(self, x):
            for layer in self.layers:
                x = x + torch.tanh(layer(x))
            return x

    compared = compare((Reference().eval(), GIVEN), (model, X))
    assert (compared.verdict, compared.no_backward) == ("EQUAL", "")
    assert compared.backward is not None
    assert compared.backward.counts.outputs == 3  # the input, the kernels, the biases
    assert not compared.backward.counts.outputs_left_out
