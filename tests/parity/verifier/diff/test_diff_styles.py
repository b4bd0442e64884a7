"""`parity diff` on models in other styles: layers under scan, TorchScript, plain functions, flags."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from parity.measure.traces import Trace
from parity.verifier.diff import InProcess, compare_sides, subject_of
from parity.verifier.diff.calls import Call
from parity.verifier.diff.server import Server
from parity.verifier.diff.sites_jax import mark, play
from tests.support import operations_models as models

DEPTH = 2


def side(name, *built):
    return InProcess(subject_of(name, built), dtype="float64")


def torch_side():
    model, weights, x = models.torch_model(DEPTH)
    return side("torch", model, x), weights, x


def test_layers_under_scan_are_compared_one_by_one():
    a, weights, x = torch_side()
    variables = models.linen_variables(weights, DEPTH, scan=True)
    found = compare_sides(a, side("scan", models.LinenModel(DEPTH, scan=True), variables, x))
    assert found.equal, found.first
    assert not found.left_out
    assert found.alignment.modules[Call("blocks.1.f1", 0)] == Call("blocks.Dense_0", 1)


def test_a_fault_in_a_plain_function_is_seen_at_its_edge():
    a, weights, x = torch_side()
    right, wrong = (
        compare_sides(a, side("function", models.jax_model(fault, DEPTH), (weights, x)))
        for fault in ("", "tanh")
    )
    assert right.equal, right.first
    assert not right.left_out
    assert wrong.first is not None
    assert wrong.first.where == ""


W = np.random.default_rng(1).standard_normal((5, 4))
BIAS = np.random.default_rng(2).standard_normal(4)
X = np.random.default_rng(3).standard_normal((3, 5))


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(W))
        self.bias = torch.nn.Parameter(torch.tensor(BIAS))

    def forward(self, x):
        return torch.tanh(x @ self.w + self.bias)


def affine(params, x, *, detached=False):
    w = jax.lax.stop_gradient(params["w"]) if detached else params["w"]
    return jnp.tanh(x @ w + params["bias"])


PARAMS = {"w": W, "bias": BIAS}
PLAIN = {
    "a tree": (affine, (PARAMS, X)),
    "a partial": (functools.partial(affine, PARAMS), X),
    "arrays": (lambda w, b, x: jnp.tanh(x @ w + b), (W, BIAS, X)),
    "two trees": (functools.partial(lambda p, q, x: affine({**p, **q}, x), {"w": W}, {"bias": BIAS}), X),
    "of torch": (
        lambda p, x: torch.tanh(x @ p["w"] + p["bias"]),
        ({n: torch.tensor(v) for n, v in PARAMS.items()}, torch.tensor(X)),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_the_parameters_of_a_plain_function_are_its_first_arguments(name):
    a, b = side("a", Affine().eval(), X), side("b", *PLAIN[name])
    for found in (compare_sides(a, b), compare_sides(b, a)):
        assert found.equal, found.first
        assert not found.left_out
        (gradients,) = (each for each in found.comparisons if each.stage == "gradients")
        assert len(gradients.judged) == (2 if name in ("a tree", "a partial", "of torch") else 0)


def test_a_gradient_that_stops_in_a_plain_function_is_a_difference():
    detached = functools.partial(affine, detached=True)
    found = compare_sides(side("a", Affine().eval(), X), side("b", detached, (PARAMS, X)))
    assert (found.first.stage, found.first.where) == ("gradients", "w")


def test_torch_script_and_functions_of_torch_are_compared():
    a, weights, x = torch_side()
    model, _, _ = models.torch_model(DEPTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(model, torch.from_numpy(x))
    state = {name: torch.from_numpy(each) for name, each in weights.items()}

    def function(state, x):
        return torch.func.functional_call(model, state, x)

    bound = functools.partial(function, state)
    for b in (side("script", script, x), side("function", bound, torch.from_numpy(x))):
        found = compare_sides(a, b)
        assert found.equal, found.first
        assert not found.left_out


class Flagged(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.arange(3.0))

    def __call__(self, x, double=False):
        return x * self.weight[...] * (2 if double else 1)


def test_a_flag_among_the_inputs_is_a_part_of_the_program(tmp_path):
    x = np.ones((2, 3))
    b = side("flagged", Flagged(), {"x": x, "double": True})
    trace = b.record(tmp_path / "trace")
    assert isinstance(trace, Trace)
    (out,) = (each for each in trace.of("forward") if each.port == "out")
    assert np.array_equal(trace.read(out), 2 * x * np.arange(3.0))


def test_marks_in_loops_are_met_once_a_step():
    def layer(x, w):
        x = mark(x, path="layer", port="in", call=1)  # of the second trace of the body
        return mark(jnp.sin(x * w), path="layer", port="out", call=1), None

    def model(x, ws):
        x, _ = jax.lax.scan(jax.checkpoint(jax.jit(layer)), x, ws)
        x, _ = jax.lax.scan(layer, x, ws, reverse=True)
        return jax.vmap(lambda each: mark(each + 1, path="head", port="out", call=0))(x)

    x, ws = jnp.arange(5.0), jnp.array([1.0, 2.0, 3.0])
    seen = []
    program = jax.make_jaxpr(model)(x, ws)
    (result,) = play(program, (x, ws), lambda where, value: seen.append((where, value)) or value)
    np.testing.assert_allclose(result, model(x, ws), rtol=1e-6)
    assert [where.call for where, _ in seen[:-1]] == [i for i in range(6) for _ in "io"]
    expected = x
    for number, w in enumerate([1.0, 2.0, 3.0, 3.0, 2.0, 1.0]):
        expected = jnp.sin(expected * w)
        np.testing.assert_allclose(seen[2 * number + 1][1], expected, rtol=1e-6)
    assert tuple(seen[-1][0]) == ("head", "out", 0)
    assert seen[-1][1].shape == (5,)


def test_the_line_of_the_user_s_own_exception_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(
        "import torch\n\nclass Broken(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + [1][3]\n\ndef broken():\n    return Broken(), torch.zeros(2, 3)\n"
    )
    server = Server()
    assert "error" not in server.answer({"build": {"name": f"{path}:broken"}})
    said = server.answer({"out": str(tmp_path / "out"), "nudge": None})
    assert said == {"error": "InputError", "message": f"IndexError in {path}:5: list index out of range"}
