"""Which operations must stay in float32: the set suffices, and none of it can be left out."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.cli import run
from parity.measure.smallest import ddmin
from parity.verifier.precision import bisect_precision
from parity.verifier.precision.rounded import RoundedProgram, _tf32
from parity.verifier.programs.sides import record
from tests.support import operations_models as models
from vit_config import ConfigError


def test_ddmin_finds_a_set_of_which_nothing_can_be_left_out():
    tried = []

    def passes(some):
        tried.append(some)
        return {3, 17, 60} <= set(some)

    assert ddmin(list(range(64)), passes) == [3, 17, 60]
    assert len(tried) < 200
    assert ddmin([5], lambda some: 5 in some) == [5]
    either = ddmin(list(range(8)), lambda some: {1, 2} <= set(some) or {6, 7} <= set(some))
    assert either in ([1, 2], [6, 7])


def offset(x):
    """Numbers far from zero whose difference matters."""
    far = x * 3 + 1000
    near = far - 999  # cancels
    return jnp.tanh(near * 0.01) * 2


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_what_a_cancellation_needs(framework):
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    if framework == "torch":
        given = torch.from_numpy(x)
        side = (lambda x: torch.tanh((x * 3 + 1000 - 999) * 0.01) * 2), given
    else:
        side = offset, x
    result = bisect_precision(side, "bfloat16", bound=0.02)
    assert result.low > 0.1
    assert result.high < 1e-3
    assert result.error <= 0.02
    assert [each.operation for each in result.held] == ["add"]  # what is far from zero
    assert result.held[0].text.endswith(
        "+ 1000" if framework == "jax" else "x * 3 + 1000 - 999) * 0.01) * 2), given"
    )
    assert result.held[0].without == result.low
    assert result.operations == 6
    assert "1 of 6 operations must stay in float32" in result.to_text()


def again(side, result, leave_out=None):
    """The error with what was found in float32, in a fresh run, without one of them if asked."""
    program = record(side, "A", dtype="float32" if result.dtype == "tf32" else result.dtype)
    rounded = RoundedProgram(program, result.dtype)
    held = []
    for index in rounded.candidates:
        op = program.operations[index]
        key = (op.scope or op.name, op.source.line, op.module, op.shape)
        held += [index] if key in {(h.operation, h.line, h.module, h.shape) for h in result.held} else []
    return rounded, held


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tf32"])
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_set_suffices_and_is_minimal(framework, dtype):
    model, weights, x = models.torch_model()
    side = (model, x) if framework == "torch" else (models.jax_model(), (weights, x))
    low = bisect_precision(side, dtype, bound=1e9)
    assert not low.held
    result = bisect_precision(side, dtype, bound=0.5 * low.low)
    assert result.low == low.low > result.bound
    assert 0 < len(result.held) < result.operations
    rounded, held = again(side, result)
    if len(held) == len(result.held):  # else one line has others like it
        assert rounded.error(held) == result.error <= result.bound
        for index, each in zip(held, result.held, strict=True):
            assert rounded.error([i for i in held if i != index]) == each.without > result.bound
    assert all(each.without > result.bound for each in result.held)


class Mixed(nn.Module):
    """A model that computes its norm in float32, as its author wrote it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(7, 5)

    def forward(self, x):
        y = self.inner(x)
        wide = y.float()
        wide = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        return wide.to(y.dtype) * 2


def test_what_a_program_computes_in_float32_stays_there():
    torch.manual_seed(0)
    side = Mixed(), torch.randn(3, 7)
    program = record(side, "A", dtype="bfloat16")
    rounded = RoundedProgram(program, "bfloat16")
    names = [program.operations[i].name for i in rounded.candidates]
    assert names == ["addmm", "convert", "mul"]

    def jax_mixed(w, x):
        y = x @ w
        wide = y.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
        return wide.astype(y.dtype) * 2

    rng = np.random.default_rng(0)
    program = record(
        (jax_mixed, (rng.normal(size=(7, 5)), rng.normal(size=(3, 7)))), "A", dtype="bfloat16"
    )
    rounded = RoundedProgram(program, "bfloat16")
    assert [program.operations[i].name for i in rounded.candidates] == ["matmul", "convert", "mul"]


def test_the_simulated_run_is_the_frameworks_own():
    """Torch runs every operator by itself: the same numbers but for the order of its sums."""
    model, _, x = models.torch_model()
    result = bisect_precision((model, x), "bfloat16", bound=1e9)
    assert result.ran == pytest.approx(result.low, rel=0.1)
    state = {name: value.bfloat16() for name, value in model.state_dict().items()}
    with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        own = torch.func.functional_call(model, state, (torch.from_numpy(x).bfloat16(),))
    program = record((model, x), "A", dtype="bfloat16")
    np.testing.assert_array_equal(program.ran[0], own.double().numpy())


def test_tf32_keeps_ten_bits():
    exact = np.array([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -np.pi, np.inf, 0.0])
    expected = np.array([1.0, 1 + 2**-10, 1.0, 1 + 2**-9, -3.140625, np.inf, 0.0])
    np.testing.assert_array_equal(_tf32(exact), expected)


SIDE = """
import numpy as np
import jax.numpy as jnp


def far():
    return (lambda x: jnp.tanh(x * 3 + 1000 - 999)), np.linspace(-1, 1, 35, dtype=np.float32)

def zeros():
    return (lambda x: jnp.tanh(x) * 0), np.linspace(-1, 1, 35, dtype=np.float32)

def bias():
    return (lambda x: jnp.tanh(x) * 0 + 0.5), np.linspace(-1, 1, 35, dtype=np.float32)
"""


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "side.py").write_text(SIDE)

    def diff(*flags):
        status = run("diff", ["side.py:far", *flags], prog="parity diff")
        said = capsys.readouterr()
        return status, said.out, said.err

    bisect = ("--bisect-precision", "bfloat16")
    status, said, _ = diff(*bisect, "--bound", "0.05", "--json", "found.json")
    assert status == 1
    assert "must stay in float32; then it is" in said
    content = json.loads((tmp_path / "found.json").read_text())
    assert content["schema"] == "parity.precision/1"
    assert content["error"] <= 0.05 < content["held"][0]["without"]
    assert diff(*bisect, "--bound", "100")[0] == 0
    assert "IMPOSSIBLE" in diff(*bisect, "--bound", "1e-12")[1]
    for flags, message in (
        (bisect, "--bisect-precision needs --bound"),
        (("side.py:far", *bisect, "--bound", "1"), "is about A alone; leave side.py:far out"),
        ((*bisect, "--bound", "-1"), "--bound -1.0: must be positive"),
        ((*bisect, "--bound", "1", "--html", "x"), "--html goes with two sides"),
        ((*bisect, "--bound", "1", "--gradients"), "--gradients goes with two programs"),
        ((*bisect, "--bound", "1", "--dtype", "float32"), "--dtype goes with two programs"),
        (("side.py:far", "--bound", "1"), "--bound goes with --bisect-precision"),
        ((), "give B, to compare A with; --as-is compares A with itself"),
        (("--bisect-precision", "int8"), "invalid choice 'int8'"),
    ):
        status, _, error = diff(*flags)
        assert (status, error.count("\n")) == (2, 1)
        assert message in error


def test_where_no_error_could_show_nothing_is_certified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "side.py").write_text(SIDE)
    for name, why in (("zeros", "it is zero throughout"), ("bias", "it is the same for all images")):
        argv = [
            f"side.py:{name}",
            "--bisect-precision",
            "bfloat16",
            "--bound",
            "0.01",
            "--json",
            "f.json",
        ]
        assert run("diff", argv, prog="parity diff") == 1
        assert f"UNCERTIFIED: what is compared says nothing: {why}" in capsys.readouterr().out
        assert json.loads((tmp_path / "f.json").read_text())["unseen"].startswith(why)


def test_bad_arguments():
    with pytest.raises(ConfigError, match="must be one of bfloat16, float16, tf32"):
        bisect_precision((jnp.sin, np.ones(3)), "float8", bound=1.0)
    with pytest.raises(ConfigError, match="bound = 0: must be positive"):
        bisect_precision((jnp.sin, np.ones(3)), bound=0)


def test_the_example_of_the_page():
    result = bisect_precision("docs/rounding.py:model", "bfloat16", bound=0.01)
    assert [each.text.split(" #")[0].strip() for each in result.held] == [
        'x = x + params["shift"]',
        "y = x - x.mean(-1, keepdims=True)",
    ]
    page = (Path(__file__).parents[4] / "docs" / "reports.md").read_text()
    assert [
        name for name in {**result.to_dict(), **vars(result.held[0])} if f"`{name}`" not in page
    ] == []
