"""Places written as programs of their own: each is run, and prints the difference that was found."""

import ast
import os
import re
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from evidence.museum.rooms import exhibits, judge
from parity.cli import run
from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.sides import record
from parity.verifier.repro import write_repro
from parity.verifier.repro.script import _npz, script
from tests.evidence.test_museum import REPRESENTATIVES
from tests.support import operations_models as models
from vit_config import ConfigError, InputError

FAULTS = ("tanh", "causal", "unscaled", "exchanged", "no residual", "last token", "transposed attention",
          "untransposed weight")  # fmt: skip
ALLOWED = {"__future__", "pathlib", "numpy", "torch", "jax"}


@pytest.fixture(scope="module")
def sides():
    model, weights, x = models.torch_model()
    torch_side = record((model, x), "A")
    jax_side = record((models.jax_model(), (weights, x)), "A")
    return torch_side, jax_side, weights, x


def executed(comparison, tmp_path, capsys):
    """What the program of the first place prints, run in this process, and its text."""
    place = comparison.places[0]
    text, held = script(place, place.gap, "A", "B")
    path = tmp_path / "place.py"
    path.write_text(text)
    (tmp_path / "place.npz").write_bytes(_npz(held))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= ALLOWED
    before = jax.config.jax_enable_x64
    try:
        runpy.run_path(str(path))
    finally:
        jax.config.update("jax_enable_x64", before)
    return difference(capsys.readouterr().out), text


def difference(printed):
    return float(re.search(r"relative difference (\S+),", printed)[1])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("framework", [0, 1], ids=["torch-jax", "jax-jax"])
def test_it_prints_the_difference_that_was_found(sides, fault, framework, tmp_path, capsys):
    *of_a, weights, x = sides
    comparison = compare_programs(of_a[framework], record((models.jax_model(fault), (weights, x)), "B"))
    printed, text = executed(comparison, tmp_path, capsys)
    assert printed == pytest.approx(comparison.places[0].gap.error, rel=0.01)
    assert "operations_models.py:" in text


def reproduces(name, tmp_path, capsys):
    _, comparison = judge(exhibits()[name])
    expected = comparison.places[0].gap.error
    printed, _ = executed(comparison, tmp_path, capsys)
    assert printed == expected == np.inf or printed == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_mistake_made_in_public(name, tmp_path, capsys):
    reproduces(name, tmp_path, capsys)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", [name for name in exhibits() if name not in REPRESENTATIVES])
def test_another_mistake_made_in_public(name, tmp_path, capsys):
    reproduces(name, tmp_path, capsys)


class Attention(nn.Module):
    def __init__(self, *, tanh=False, causal=False, scale=6**-0.5):
        super().__init__()
        self.qkv, self.out = nn.Linear(30, 90), nn.Linear(30, 30)
        self.tanh, self.causal, self.scale = tanh, causal, scale

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(2, 7, 3, 5, 6).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * self.scale
        if self.causal:
            hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -1e9)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 7, 30)
        return nn.functional.gelu(self.out(x), approximate="tanh" if self.tanh else "none")


@pytest.mark.parametrize("fault", [{"tanh": True}, {"causal": True}, {"scale": 1.0}], ids=str)
def test_torch_against_torch(fault, tmp_path, capsys):
    torch.manual_seed(0)
    right, wrong = Attention(), Attention(**fault)
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(2, 7, 30)
    comparison = compare((right, x), (wrong, x))
    printed, text = executed(comparison, tmp_path, capsys)
    assert printed == pytest.approx(comparison.places[0].gap.error, rel=0.01)
    assert "import jax" not in text


def test_writing_in_place_and_scans(tmp_path, capsys):
    def in_place(x, wrong):
        x = x * 1.5
        x[:, 1] += 0.5 if wrong else 0.25
        return x.cumsum(0)

    x = np.random.default_rng(0).normal(size=(3, 7))
    torch_x = torch.from_numpy(x)
    comparison = compare((lambda x: in_place(x, False), torch_x), (lambda x: in_place(x, True), torch_x))
    assert executed(comparison, tmp_path, capsys)[0] == pytest.approx(
        comparison.places[0].gap.error, rel=0.01
    )

    def scanned(x, power):
        return jax.lax.scan(lambda c, row: (c + row**power, jnp.sin(c)), jnp.zeros(7), x)

    comparison = compare((lambda x: scanned(x, 2), x), (lambda x: scanned(x, 3), x))
    assert executed(comparison, tmp_path, capsys)[0] == pytest.approx(
        comparison.places[0].gap.error, rel=0.01
    )


def scattered(x, sign):
    return x.at[jnp.array([0, 2])].add(sign * 2.0)


def placed(x, row):
    return x.at[jnp.array([0, row])].set(2 * x[:2])


def solved(x, lower):
    return jax.scipy.linalg.solve_triangular(x @ x.T + 9 * jnp.eye(3), x, lower=lower)


def pooled(x, window):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (window, 2), (1, 1), "SAME")


def sliced(x, begin):
    return jax.lax.dynamic_slice(x[0], (jnp.int32(begin),), (2,)) * 2


def joined(x, sign):
    return jnp.concatenate([jax.lax.concatenate([x], 0), sign * x])


@pytest.mark.parametrize(
    ("function", "right", "wrong"),
    [
        (scattered, 1.0, -1.0), (placed, 2, 1), (solved, True, False), (pooled, 2, 1), (sliced, 1, 2),
        (joined, 1.0, -1.0),
    ],
)  # fmt: skip
def test_primitives_without_a_plainer_form(function, right, wrong, tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(3, 5))
    comparison = compare((lambda x: function(x, right), x), (lambda x: function(x, wrong), x))
    assert executed(comparison, tmp_path, capsys)[0] == pytest.approx(
        comparison.places[0].gap.error, rel=0.01
    )


def test_drawn_numbers_cannot_be_written(tmp_path):
    def drawn(x, seed):
        return x * jax.random.normal(jax.random.key(seed), (3, 5))

    x = np.ones((3, 5))
    comparison = compare((lambda x: drawn(x, 0), x), (lambda x: drawn(x, 1), x))
    with pytest.raises(InputError, match="drawn numbers cannot be written as a program"):
        write_repro(comparison.places[0], tmp_path / "place.py")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_and_runs_it(tmp_path, capsys):
    sides = [f"docs/port.py:{name}" for name in ("original", "port", "corrected")]
    path = tmp_path / "place.py"
    sides[0] = os.path.abspath(sides[0])
    assert run("diff", [*sides[:2], "--repro", str(path)], prog="parity diff") == 1
    out = capsys.readouterr().out
    assert os.getcwd() not in path.read_text()
    assert difference(out) == pytest.approx(2.21e-4, rel=0.01)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["place.npz", "place.py"]
    path.unlink()
    assert run("diff", [*sides[1:], "--repro", str(tmp_path / "place.txt")], prog="parity diff") == 2
    assert "give a name that ends in .py" in capsys.readouterr().err


def test_names_and_formulas_are_no_code(tmp_path):
    """The name of a parameter is what a file says, as that of an ONNX graph is."""
    name = 'w\nraise SystemExit(3)\n"""\r\x0c\u2028raise SystemExit(4)'

    class Named(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.register_parameter(name, nn.Parameter(torch.arange(1.0, 8.0)))
            self.function = function

        def forward(self, x):
            return self.function(x, getattr(self, name))

    x = torch.linspace(0.1, 1, 7)
    place = compare((Named(torch.add), x), (Named(torch.sub), x)).places[0]
    text, held = script(place, place.gap, name, f"{name}.onnx")
    assert "reads w raise SystemExit(3)" in text
    body = ast.parse(text).body
    assert isinstance(body[0], ast.Expr)
    assert not [
        each for statement in body for each in ast.walk(statement) if isinstance(each, ast.Raise)
    ]
    (tmp_path / "place.py").write_text(text)
    (tmp_path / "place.npz").write_bytes(_npz(held))
    runpy.run_path(str(tmp_path / "place.py"))


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    x = np.linspace(0.1, 1, 7)
    comparison = compare((np_free, x), (lambda x: jnp.sin(x) * 2, x))
    path = tmp_path / "place.py"
    with pytest.raises(ConfigError, match=r"ends in \.py"):
        write_repro(comparison.places[0], tmp_path / "place")
    place = comparison.places[0].__class__(**{**vars(comparison.places[0]), "gap": None})
    with pytest.raises(InputError, match="no region to write"):
        write_repro(place, path)
    assert not list(tmp_path.iterdir())
    assert difference(write_repro(comparison.places[0], path)) > 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["place.npz", "place.py"]


def np_free(x):
    return jnp.sin(x) * 3
