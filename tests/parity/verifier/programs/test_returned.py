"""What programs return that is no array of their framework: compared if it holds numbers, else named."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import parity
from vit_config import InputError

pytestmark = pytest.mark.quick

X = np.random.default_rng(0).standard_normal((3, 8))
T = torch.from_numpy(X)


class Logits:
    """An output that is neither a tuple nor a dictionary nor a dataclass."""

    def __init__(self, logits):
        self.logits = logits


BESIDE = {
    "numpy": lambda y, k: (k * y).numpy(force=True),
    "item": lambda y, k: (k * y).mean().item(),
    "float": lambda y, k: 1.5 * k,
    "integer": lambda y, k: 3 * k,
    "float32": lambda y, k: np.float32(k / 3),
    "dictionary": lambda y, k: {"loss": (k * y).sum().item(), "count": len(y)},
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("factor", [1, 2])
def test_numbers_beside_a_tensor_are_compared(beside, factor):
    a, b = ((lambda x, k=k: (2 * x, beside(x, k)), T) for k in (1, factor))
    found = parity.diff(a, b)
    assert found.verdict == ("EQUAL" if factor == 1 else "DIFFERENT")
    assert found.forward.counts.outputs == (3 if beside is BESIDE["dictionary"] else 2)


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_of_python_is_compared_with_an_array(factor, reverse):
    sides = [
        (lambda x: {"y": x * 2, "loss": (x**2).mean().item()}, T),
        (lambda x: {"y": x * 2, "loss": factor * (x**2).mean()}, X),
    ]
    found = parity.diff(*(sides[::-1] if reverse else sides))
    assert found.verdict == ("EQUAL" if factor == 1 else "DIFFERENT")
    assert found.forward.counts.outputs == 2
    if factor == 1:  # no gradient can flow through a number
        assert found.backward.verdict == "EQUAL"
        assert found.remarks == (
            f"{'AB'[reverse]}: returns loss as no tensor, through which no gradient flows",
        )


NOTHING = {
    "nothing": (lambda x: None, ""),
    "an empty tuple": (lambda x: (), ""),
    "a set": (lambda x: {len(x)}, " (output, of class set)"),
    "a generator": (lambda x: (each for each in x), " (output, of class generator)"),
    "two texts": (lambda x: ("a", "b"), " (0, of class str; 1, of class str)"),
}


@pytest.mark.parametrize("case", NOTHING)
@pytest.mark.parametrize("given", [T, jnp.asarray(X)], ids=["torch", "jax"])
def test_a_program_must_return_something(case, given):
    function, words = NOTHING[case]
    line = f"b: returns nothing that holds numbers{words}; return an array"
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        parity.diff((lambda x: x * 2, given), (function, given))


class Named:
    """An output that holds no numbers, but itself."""

    def __init__(self):
        self.name, self.whole = "logits", self


OPAQUE = [lambda x: {len(x)}, lambda x: Named(), lambda x: "a text", lambda x: iter(x)]


@pytest.mark.parametrize("beside", OPAQUE)
@pytest.mark.parametrize("given", [T, X])
def test_what_holds_no_numbers_is_named(beside, given):
    name = type(beside(X)).__name__ if given is X else type(beside(T)).__name__
    function = (lambda x: (x * 2.0, beside(x), 1.5)), given
    found = parity.diff(function, function)
    assert found.verdict == "INCOMPLETE"
    assert found.forward.counts.outputs == 2
    (left_out,) = found.forward.counts.outputs_left_out
    assert left_out.startswith("A's and B's 1, of class")
    assert given is X or left_out.endswith(name)
    alone = parity.diff((lambda x: (x * 2.0, 1.5), given), function)
    assert alone.verdict == "EQUAL"
    assert alone.forward.counts.outputs_left_out[0].startswith("B's 1, of class")


@pytest.mark.parametrize("given", [T, jnp.asarray(X)], ids=["torch", "jax"])
def test_the_numbers_of_an_object_are_compared(given):
    def function(factor):
        return lambda x: (x * 2.0, Logits(Logits((x * factor, "a text")))), given

    assert parity.diff(function(3.0), function(3.0)).verdict == "EQUAL"
    found = parity.diff(function(3.0), function(4.0))
    assert (found.verdict, found.forward.counts.outputs) == ("DIFFERENT", 2)


def test_a_cache_of_keys_and_values_is_no_output():
    """Language models of transformers return one; a port need not."""
    cache = type("Cache", (), {"__module__": "transformers.cache_utils", "keys": T})
    kept = type("DynamicCache", (cache,), {})
    found = parity.diff(
        (lambda x: {"logits": x * 2, "past_key_values": kept()}, T), (lambda x: x * 2, T)
    )
    assert found.verdict == "EQUAL"
    said = "returns past_key_values, of class DynamicCache, a cache, which is not compared"
    assert any(said in each for each in found.remarks), found.remarks


def test_outputs_of_other_names_are_said():
    found = parity.diff(
        (lambda x: {"a": x * 2, "b": x.sum(0)}, T), (lambda x: {"a": x * 2, "c": jnp.sum(x, 0)}, X)
    )
    assert found.verdict == "EQUAL"
    assert found.remarks == ("B: outputs of other names are compared: c with A's b",)
    of_tuple = parity.diff((lambda x: {"a": x * 2}, T), (lambda x: (jnp.multiply(x, 2),), X))
    assert (of_tuple.verdict, of_tuple.remarks) == ("EQUAL", ())


def test_outputs_of_other_shapes_are_said():
    found = parity.diff((lambda x: x * 2, T), (lambda x: jnp.ravel(x * 2), X))
    assert found.verdict == "EQUAL"
    assert found.remarks == ("B: outputs of other shapes are compared: its output [24] with A's [3, 8]",)
    kept = parity.diff((lambda x: x * 2, T), (lambda x: jnp.multiply(x, 2)[None], X))
    assert (kept.verdict, kept.remarks) == ("EQUAL", ())
