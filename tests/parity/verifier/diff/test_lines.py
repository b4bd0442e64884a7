"""Where two models differ, their lines of source: forward, and backward where forward is the same."""

import io
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx
from rich.console import Console

from parity import diagnose, diff
from parity.cli.diff import main
from parity.verifier.diagnose.diagnosis_report import print_diagnosis
from parity.verifier.diff import process, subject_of
from parity.verifier.diff.diff_report import print_difference
from parity.verifier.diff.lines import compare_models
from parity.verifier.reports.of_difference import report_of_diagnosis
from tests.support.sides import ServedHere

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


def printed(show, found):
    out = io.StringIO()
    show(found, Console(file=out, width=200))
    return out.getvalue()


def test_the_two_formulas_stand_below_the_cause(made):
    diagnosis = diagnose(made["original"](), made["tanh"]())
    text = printed(print_diagnosis, diagnosis)
    assert [each.name for each in diagnosis.causes] == ["activation"]
    assert "A perceptrons.py:11  erf(x * 0.707106781187)" in text
    assert 'torch.nn.functional.gelu(x, approximate="tanh")' in text
    (of_modules, of_lines) = report_of_diagnosis(diagnosis).findings
    assert (of_modules.rule, of_lines.rule) == ("forward-differs", "activation")
    assert {line.line for line in of_lines.b.lines} == {line_of('approximate="tanh"')}


def test_a_part_in_float32_is_told_from_another_formula(made):
    diagnosis = diagnose(made["original"](), made["in_float32"]())
    assert not diagnosis.equal
    assert diagnosis.lines.verdict == "EQUAL"
    assert [each.name for each in diagnosis.causes] == ["number-type"]
    text = printed(print_diagnosis, diagnosis)
    assert "the forward pass and the gradients are the same" in text
    assert f"B asks for float32 at perceptrons.py:{line_of('x.float()')}" in text


def test_a_gradient_that_differs_alone_has_its_line(made):
    difference = diff(made["original"](), made["half_detached"]())
    assert difference.first.stage in ("backward", "gradients")
    assert difference.lines.backward
    (place,) = difference.lines.places
    assert line_of("0.25 * x.detach()") in {line.line for line in place.b.lines}
    assert "the forward pass is the same. In the backward pass:" in printed(print_difference, difference)


def test_what_is_equal_has_no_lines_and_is_not_compared_again(made):
    difference = diff(made["original"](), made["original"]())
    assert (difference.lines, difference.no_lines) == (None, "")


def test_the_command_writes_the_place_and_its_line(file, tmp_path, monkeypatch, capsys):
    # the module alone: the place is tried in a process of its own
    monkeypatch.setattr(process, "subprocess", SimpleNamespace(Popen=ServedHere, PIPE=-1))
    sarif, program, written = (tmp_path / name for name in ("d.sarif", "place.py", "d.json"))
    flags = ["--sarif", str(sarif), "--repro", str(program), "--json", str(written)]
    assert main([f"{file}:original", f"{file}:tanh", *flags]) == 1
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    region = next(r for r in results if r["ruleId"] == "activation")["locations"][0]["physicalLocation"]
    assert region["region"]["startLine"] == line_of('approximate="tanh"')
    assert "tanh" in program.read_text()
    assert json.loads(written.read_text())["lines"]["places"][0]["cause"] == "activation"
    assert f"{program}: the place as a program" in capsys.readouterr().out


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
    return compare_models(*(subject_of(name, side) for name, side in zip("AB", sides, strict=True)))


def test_gradients_find_each_other_by_the_parameters_they_are_of(pair):
    found = gradients(pair)
    assert (found.verdict, found.backward) == ("EQUAL", True)
    # the output, the loss, two norms, out, and what is packed
    assert found.counts.outputs == 2 + 4 + 2 + 2
    assert found.error < 1e-13


def test_a_stopped_gradient_is_on_its_line(pair):
    found = gradients(pair, "k")
    assert (found.verdict, found.backward) == ("DIFFERENT", True)
    assert found.places[0].kind != "open"


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
    a = subject_of("A", (Held(jnp.asarray(weight)), x))
    for other in ((function, (state, x)), (model, x), (function, (of_torch, torch.from_numpy(x)))):
        found = compare_models(a, subject_of("B", other))
        assert (found.verdict, found.backward, found.counts.outputs) == ("EQUAL", True, 3)
