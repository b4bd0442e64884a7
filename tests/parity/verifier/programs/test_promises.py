"""Outputs of a preset or a checkpoint that the other side does not have."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.compare import compare
from parity.verifier.programs.build import BuildOrder, build_from
from parity.verifier.programs.sides import OfWeights, record, taken_apart

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def twin(x):
    return {"pooled": jnp.tanh(x), "logits": jnp.tanh(x) @ X.T}


def logits(x):
    return jnp.tanh(x) @ X.T


def test_what_a_checkpoint_returns_besides_is_named_and_does_not_count():
    compared = compare(OfWeights((twin, X)), (logits, X))
    assert compared.verdict == "EQUAL"
    assert "B does not return A's: pooled" in compared.to_text()
    assert compared.forward.counts.outputs_left_out == ("A's pooled",)


@pytest.mark.parametrize("wrong", [lambda x: logits(x) * 1.01, lambda x: logits(x) + x.sum()])
def test_what_it_returns_is_compared(wrong):
    assert compare(OfWeights((twin, X)), (wrong, X)).verdict == "DIFFERENT"


def test_another_program_must_return_all_of_a():
    compared = compare((twin, X), (logits, X))
    assert compared.verdict == "INCOMPLETE"
    assert "not compared: A's pooled" in compared.to_text()
    assert compare((logits, X), OfWeights((twin, X))).verdict == "EQUAL"


def test_one_output_at_least_is_compared():
    assert compare(OfWeights((twin, X)), (lambda x: x[:1, :1] * 2, X)).verdict == "INCOMPLETE"


def test_a_name_of_a_preset_is_marked_and_a_function_is_not():
    made = build_from(BuildOrder(name="jax:vit_tiny_patch16_224"))
    assert isinstance(made, tuple)
    assert taken_apart(made, "A").promises_more
    assert not taken_apart((twin, X), "A").promises_more


def test_what_a_side_returns_without_numbers_is_named_where_a_leaf_was_rounded():
    weight = torch.nn.Linear(4, 3).eval()
    half = torch.nn.Linear(4, 3).eval()
    half.load_state_dict(weight.state_dict())
    half.bfloat16()
    given = torch.from_numpy(X)
    spoken = lambda x: (weight(x), {"a text"})  # noqa: E731
    compared = compare((spoken, given), (lambda x: half(x.bfloat16()).double(), given))
    assert compared.forward.rounded
    assert any("of class set" in each for each in compared.forward.counts.outputs_left_out)


def test_a_program_of_torch_export_is_in_the_mode_that_it_ran_in():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)).eval()
    program = torch.export.export(module, (torch.from_numpy(X),)).module()
    assert record((program, torch.from_numpy(X)), "A").notes == []
