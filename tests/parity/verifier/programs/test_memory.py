"""Programs that write into memory, and memory that nothing was written to."""

import jax.numpy as jnp
import numpy as np
import torch

from parity.verifier.locate import compare_programs
from parity.verifier.programs.program import _memory
from parity.verifier.programs.sides import record


def test_writing_into_tensors():
    def writes(x):
        y = torch.zeros_like(x)
        y[:, 1:] += x[:, :-1]
        first = y[:, 0]
        y[:, 0] = 3.0
        return y * 2 + first.sum()

    def pure(x):
        y = jnp.concatenate([jnp.full_like(x[:, :1], 3.0), x[:, :-1]], 1)
        return y * 2 + 3.0 * x.shape[0]

    x = np.random.default_rng(0).normal(size=(3, 5))
    a = record((writes, torch.from_numpy(x)), "A")
    assert compare_programs(a, record((pure, x), "B")).verdict == "EQUAL"
    output = a.outputs[0][1]
    ran = a.values([output])[output]
    a.cache = {op.index: a.cache[op.index] for op in a.operations if op.run is None}
    np.testing.assert_array_equal(a.values([output])[output], ran)


def test_memory_that_was_never_written_to_holds_no_numbers():
    def writes(x):
        y = torch.empty(3, 5, dtype=x.dtype).fill_(1e3)  # what lies in memory that is given again
        del y
        z = x.new_empty(3, 5)
        z.copy_(x[:1] * 2)
        return z, torch.empty_like(x)

    x = np.random.default_rng(0).normal(size=(3, 5))
    program = record((writes, torch.from_numpy(x)), "A")
    (_, copied), (_, unset) = program.outputs
    np.testing.assert_array_equal(program.values([unset])[unset], np.zeros((3, 5)))
    assert not program.operations[unset].inputs
    before = [program.operations[i].name for i in program.operations[copied].inputs]
    assert before == ["mul"]  # not what was overwritten
    program.cache = {op.index: program.cache[op.index] for op in program.operations if op.run is None}
    again = program.values([copied])[copied]
    np.testing.assert_array_equal(again, np.broadcast_to(x[:1] * 2, (3, 5)))


def test_what_an_operator_wrote_is_computed_again(monkeypatch):
    """An operator that writes returns several results as one, which no value stands for."""
    monkeypatch.setattr("parity.verifier.programs.program.KEEP_BYTES", 0)
    recorded = record((lambda x: x.clone().add_(2.0) * 3.0, torch.arange(6.0).double()), "A")
    values = recorded.values([op.index for op in recorded.operations])
    (_, last), *_ = recorded.outputs
    assert values[last].tolist() == [6.0, 9.0, 12.0, 15.0, 18.0, 21.0]


def test_views_of_one_tensor_are_one_memory():
    tensor = torch.zeros(10)
    for view in (tensor.numpy(), tensor.numpy()[2:], tensor.numpy()[5:].reshape(5, 1)):
        assert _memory(view) == (tensor.data_ptr(), 40)
