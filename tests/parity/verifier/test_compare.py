"""One verb: forward, and backward where forward is the same; one verdict, one report."""

import copy
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx

from parity import diff, record
from parity.cli import run
from parity.verifier.compare import compare
from parity.verifier.report.of_comparison import report_of

MODELS = """
import torch


class Perceptron(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.wide, self.narrow, self.act = torch.nn.Linear(7, 13), torch.nn.Linear(13, 7), act

    def forward(self, x):
        return self.narrow(self.act(self.wide(x)))


def made(act):
    torch.manual_seed(0)
    return Perceptron(act).eval().double(), torch.randn(3, 7).double()


def original():
    return made(torch.nn.functional.gelu)


def tanh():
    return made(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))


def in_float32():
    return made(lambda x: torch.nn.functional.gelu(x.float()).to(x.dtype))


def half_detached():
    return made(lambda x: torch.nn.functional.gelu(0.25 * x.detach() + 0.75 * x))
"""


def line_of(text):
    (number,) = [i for i, line in enumerate(MODELS.splitlines(), 1) if text in line]
    return number


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "perceptrons.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="module")
def made(file):
    scope = {}
    exec(compile(MODELS, str(file), "exec"), scope)
    return scope


def test_each_phase_is_named_as_it_begins(made):
    phases, left = [], []

    def on_stage(phase, work, then):
        phases.append(phase)
        left.append(work + then)

    compare(made["original"](), made["original"](), dtype="float32", on_stage=on_stage)
    assert left == sorted(left, reverse=True)
    assert phases == [
        "recording the operations of both", "comparing the forward passes",
        "recording the backward passes", "comparing the gradients", "running both in float32",
    ]  # fmt: skip


def test_equal_models_and_their_gradients(made):
    comparison = compare(made["original"](), made["original"]())
    assert (comparison.verdict, comparison.backward.error, comparison.places) == ("EQUAL", 0.0, ())
    assert "gradients of 4 of 4 parameters and 1 of 1 input (" in comparison.to_text()
    assert compare(made["original"](), made["original"](), backward=False).backward is None


def test_a_fault_has_two_formulas_and_the_gradients_are_not_asked_for(made):
    comparison = diff(made["original"](), made["tanh"]())
    assert (comparison.verdict, comparison.causes, comparison.backward) == (
        "DIFFERENT",
        ("activation",),
        None,
    )
    text = comparison.to_text()
    assert "A perceptrons.py:11  erf(x * 0.707106781187)" in text
    assert 'torch.nn.functional.gelu(x, approximate="tanh")' in text
    (finding,) = report_of(comparison).findings
    assert {line.line for line in finding.b.lines} == {line_of('approximate="tanh"')}


def test_a_part_in_float32_is_noted_with_its_line(made):
    comparison = compare(made["original"](), made["in_float32"]())
    assert comparison.equal
    line = line_of("x.float()")
    assert (
        f"compared in float64 all the same: B asks for float32 at perceptrons.py:{line}"
        in comparison.to_text()
    )


def test_a_gradient_that_differs_alone_has_its_line(made):
    comparison = compare(made["original"](), made["half_detached"]())
    (place,) = comparison.backward.places
    assert line_of("0.25 * x.detach()") in {line.line for line in place.b.lines}
    assert "the outputs are the same; their gradients are not:" in comparison.to_text()
    assert not comparison.forward.places
    written = report_of(comparison).to_dict()
    assert (written["verdict"], len(written["backward"]["places"])) == ("DIFFERENT", 1)


def test_the_verb_writes_its_report(file, tmp_path, capsys):
    written = tmp_path / "d.json"
    flags = ["--json", str(written), "--modules"]
    assert run("diff", [f"{file}:original", f"{file}:tanh", *flags]) == 1
    content = json.loads(written.read_text())
    assert content["command"] == "diff"
    (b,) = [each["b"] for each in content["findings"]]
    assert b["lines"][0]["line"] == line_of('approximate="tanh"')
    out = capsys.readouterr().out
    assert out.startswith("DIFFERENT: 1 of 1 output compared (21 numbers)")
    assert "narrow" in out.partition("module of B")[2]


def test_the_table_of_modules_never_contradicts_the_verdict(made):
    model, x = made["original"]()

    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * (x @ (self.weight.T / 2) + self.bias / 2)

    other = copy.deepcopy(model)
    other.wide = Doubled(7, 13).double()
    other.load_state_dict(model.state_dict())
    comparison = compare((model, x), (other, x))
    assert comparison.equal
    assert not [row for row in comparison.module_rows()[1] if row[-1] == "differs"]


def test_a_recording_is_compared_with_recordings_alone(file, tmp_path, capsys):
    with record(tmp_path / "a.trace") as recording, recording.step(x=np.ones(3)):
        recording.log("loss", np.ones(1))
    assert run("diff", [str(tmp_path / "a.trace"), f"{file}:original"]) == 2
    assert "is a recording and" in capsys.readouterr().err
    assert run("diff", [str(tmp_path / "a.trace"), str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such file or folder; give a recording" in capsys.readouterr().err
    assert run("diff", [f"{file}:original", f"{file}:tanh", "--accept", "beta2"]) == 2
    assert "--accept goes with two recordings" in capsys.readouterr().err
    assert run("diff", [str(tmp_path / "a.trace")] * 2 + ["--modules"]) == 2
    assert "--modules goes with two programs, and " in capsys.readouterr().err
    assert run("diff", [f"{file}:original", f"{file}:tanh", "--gradients", "--dtype", "float32"]) == 2
    assert "leave --dtype out" in capsys.readouterr().err


class Original(torch.nn.Module):
    """Fresh: its norms are ones, its biases zeros; two square matrices, packed."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2 = torch.nn.LayerNorm(5), torch.nn.LayerNorm(5)
        self.packed, self.out = torch.nn.Linear(5, 10), torch.nn.Linear(5, 5)
        torch.nn.init.zeros_(self.out.bias)

    def forward(self, x):
        q, k = self.packed(self.n1(x)).chunk(2, -1)
        return self.n2(x + self.out(torch.tanh(q) * k))


class Split(linen.Module):
    """A port with what is packed there in two."""

    stopped: str = ""

    @linen.compact
    def __call__(self, x):
        n = linen.LayerNorm(epsilon=1e-5, name="first")(x)
        q, k = linen.Dense(5, name="q")(n), linen.Dense(5, name="k")(n)
        if self.stopped == "k":
            k = jax.lax.stop_gradient(k)
        y = linen.Dense(5, name="out")(jnp.tanh(q) * k)
        if self.stopped == "skip":
            x = jax.lax.stop_gradient(x)
        return linen.LayerNorm(epsilon=1e-5, name="last")(x + y)


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(1)
    model, x = Original().double(), np.random.default_rng(0).normal(size=(3, 5))
    state = {name: each.detach().numpy() for name, each in model.named_parameters()}
    halves = {
        name: {"kernel": state["packed.weight"][part].T, "bias": state["packed.bias"][part]}
        for name, part in (("q", slice(0, 5)), ("k", slice(5, 10)))
    }
    norm = {"scale": np.ones(5), "bias": np.zeros(5)}
    out = {"kernel": state["out.weight"].T, "bias": state["out.bias"]}
    return model, {"params": {"first": norm, "last": norm, "out": out, **halves}}, x


def gradients(pair, stopped=""):
    model, variables, x = pair
    sides = (model, torch.from_numpy(x)), (Split(stopped), variables, x)
    return compare(*sides)


def test_gradients_find_each_other_by_the_parameters_they_are_of(pair):
    backward = gradients(pair).backward
    assert backward.verdict == "EQUAL"
    # the input, two norms, out, and what is packed
    assert backward.counts.outputs == 1 + 4 + 2 + 2
    assert backward.error < 1e-13


def test_a_stopped_gradient_is_on_its_line(pair):
    comparison = gradients(pair, "k")
    assert (comparison.verdict, comparison.forward.verdict) == ("DIFFERENT", "EQUAL")
    assert comparison.places[0].kind != "open"


class Held(nnx.Module):
    """Parameters beside a counter, which has no gradient."""

    def __init__(self, weight):
        self.weight, self.calls = nnx.Param(weight), nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        return x @ self.weight[...]


def test_gradients_of_modules_and_functions_with_state():
    weight, x = np.random.default_rng(0).normal(size=(5, 3)), np.ones((2, 5))
    function = lambda tree, x: x @ tree["weight"] + 0 * tree["calls"]  # noqa: E731
    state = {"weight": weight, "calls": np.zeros((), np.int32)}
    model = torch.nn.Linear(5, 3, bias=False).double()
    model.weight.data = torch.from_numpy(weight.T.copy())
    of_torch = {"weight": torch.from_numpy(weight), "calls": torch.zeros((), dtype=torch.int32)}
    a = Held(jnp.asarray(weight)), x
    for other in ((function, (state, x)), (model, x), (function, (of_torch, torch.from_numpy(x)))):
        comparison = compare(a, other)
        assert (comparison.verdict, comparison.backward.counts.outputs) == ("EQUAL", 2)


def test_a_side_in_another_interpreter_has_the_same_report(file, capfd):
    alone = ["--python-b", sys.executable]
    assert run("diff", [f"{file}:original", f"{file}:tanh"]) == 1
    here = capfd.readouterr().out
    assert run("diff", [f"{file}:original", f"{file}:tanh", *alone]) == 1
    assert capfd.readouterr().out == here
    banner = Path(file).with_name("banner")
    banner.write_text("#!/bin/sh\necho hello\nexec cat > /dev/null\n")
    banner.chmod(0o755)
    old = Path(file).with_name("old")
    old.write_text("#!/bin/sh\nprintf 'Traceback\\nNo module named numpy\\n\\n' >&2\nexit 1\n")
    old.chmod(0o755)
    for python, said in (
        ("/bin/true", "original: its process ended with status 0: it printed nothing"),
        (str(old), "original: its process ended with status 1: No module named numpy"),
        (str(banner), "original: its process answers what this package does not"),
        ("/no/python", "No such file or directory; give the path of a Python interpreter"),
    ):
        assert run("diff", [f"{file}:original", f"{file}:original", "--python-a", python]) == 2
        err = capfd.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_what_is_another_function_in_float32_alone_is_shown_there():
    weight = np.random.default_rng(3).normal(size=(7, 5)).astype(np.float32)
    x = np.random.default_rng(4).normal(size=(3, 7)).astype(np.float32)

    def right(w, x):
        return jax.nn.gelu(x @ w, approximate=False)

    def wrong(w, x):
        return jax.nn.gelu(x @ w, approximate=x.dtype == jnp.float32)

    assert compare((right, (weight, x)), (wrong, (weight, x)), backward=False).equal
    comparison = compare((right, (weight, x)), (wrong, (weight, x)), backward=False, dtype="float32")
    assert (comparison.verdict, comparison.in_type.side, comparison.in_type.apart.verdict) == (
        "DIFFERENT", "B", "DIFFERENT"
    )  # fmt: skip
    assert report_of(comparison).to_dict()["verdict"] == "DIFFERENT"
    same = compare((right, (weight, x)), (right, (weight, x)), backward=False, dtype="bfloat16")
    assert same.equal
    assert max(same.in_type.errors) > 1e-4


def test_the_first_place_is_told_while_others_are_looked_for():
    told = []
    x = np.linspace(0.1, 1.9, 21).reshape(3, 7)
    w = np.cos(np.arange(49.0)).reshape(7, 7)

    def of(epsilon, factor):
        def model(x):
            x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + epsilon)
            x = jax.nn.sigmoid(x @ w)
            return (x * factor + x[::-1]) @ w

        return model, x

    found = compare(of(1e-6, 2.0), of(1e-3, 2.5), backward=False, on_place=told.append)
    assert [place.cause for place in found.places] == ["epsilon", "number"]
    assert [place.cause for place in told] in (["epsilon"], ["number"])
    alone = compare(of(1e-6, 2.0), of(1e-3, 2.0), backward=False, on_place=told.append)
    assert len(told) == len(alone.places) == 1
