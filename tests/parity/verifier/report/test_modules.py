"""Modules of two programs that cut the same computation at other places and call its parts otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from parity.cli.diff import _show_modules
from parity.cli.dispatch import main
from parity.verifier.locate import compare
from parity.verifier.programs.sides import record
from parity.verifier.report.comparison import MODULE_COLUMNS

X = np.random.default_rng(1).standard_normal((3, 6))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.side, self.down = nn.Linear(6, 10), nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x):
        return self.down(torch.sigmoid(self.side(x)) * self.up(x))


class Original(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.gates = nn.ModuleList([Gate(), Gate()])

    def forward(self, x):
        for gate in self.gates:
            x = x + gate(self.norm(x))
        return x


class Half(nnx.Module):
    """A linear layer and what follows it."""

    def __init__(self, layer, follows):
        weight, bias = (p.detach().numpy().copy() for p in layer.parameters())
        self.kernel, self.bias, self.follows = nnx.Param(weight.T), nnx.Param(bias), follows

    def __call__(self, x):
        return self.follows(x @ self.kernel[...] + self.bias[...])


class Layer(nnx.Module):
    def __init__(self, gate, sigmoid):
        self.left = Half(gate.side, sigmoid)
        self.right = Half(gate.up, lambda x: x)
        self.out = Half(gate.down, lambda x: x)

    def __call__(self, x):
        normal = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return x + self.out(self.left(normal) * self.right(normal))


class Port(nnx.Module):
    def __init__(self, original, sigmoids):
        pairs = zip(original.gates, sigmoids, strict=True)
        self.layer = nnx.List([Layer(gate, sigmoid) for gate, sigmoid in pairs])

    def __call__(self, x):
        for layer in self.layer:
            x = layer(x)
        return x


def compared(*sigmoids):
    torch.manual_seed(0)
    original = Original().double().eval()
    return compare((original, torch.from_numpy(X)), (Port(original, sigmoids), X))


def test_modules_are_paired_by_what_they_compute():
    comparison = compared(jax.nn.sigmoid, jax.nn.sigmoid)
    assert comparison.verdict == "EQUAL"
    of_a = {each.path: each.of_a for each in comparison.modules}
    assert of_a["layer"] == "gates"
    assert of_a["layer.1"] == "gates.1"
    assert of_a["layer.0.right"] == "gates.0.up"
    assert of_a["layer.0.left"] == "gates.0.side"  # with its sigmoid, which A's has not
    assert of_a["layer.1.out"] == "gates.1.down"
    assert {each.state for each in comparison.modules} == {"same"}


def test_a_module_parts_and_those_behind_it_differ():
    comparison = compared(jax.nn.sigmoid, jnp.tanh)
    states = {each.path: each.state for each in comparison.modules}
    assert states["layer.1.left"] == "parts here"
    assert states["layer.1.right"] == states["layer.0"] == states["layer.0.out"] == "same"
    assert states["layer.1.out"] == states["layer.1"] == "differs"
    # what they are is told from the program with its fault mended
    assert {each.path: each.of_a for each in comparison.modules}["layer.1.out"] == "gates.1.down"
    assert comparison.places[0].b.module == "layer.1.left"
    assert ("layer.1.left", "gates.1.side", "0 of 1", "parts here") in comparison.module_rows()
    assert comparison.to_dict()["modules"][0]["path"] == "layer"


def test_a_line_in_a_module_of_nnx_keeps_its_callers():
    program = record((Port(Original(), [jax.nn.sigmoid] * 2), X), "B", gradients=False)
    product = next(op for op in program.operations if op.module == "layer.0.out" and op.name == "matmul")
    assert product.source is not None
    assert product.source.caller is not None
    assert product.source.caller.text.startswith("return x + self.out(")


def test_a_program_without_modules_says_so():
    comparison = compare((lambda x: jnp.sin(x), X), (lambda x: jnp.sin(x), X))
    assert comparison.modules == ()
    assert comparison.module_rows() == []


def test_the_command_prints_them(capsys, tmp_path):
    page = tmp_path / "page.html"
    sides = ["docs/port.py:original", "docs/port.py:port"]
    assert main(["diff", *sides, "--modules", "--html", str(page)]) == 1
    cells = (
        "<td>VisionTransformer.block_0.mlp</td><td>blocks.0.mlp</td><td>0 of 1</td><td>parts here</td>"
    )
    assert cells in page.read_text()
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line}
    row = rows["VisionTransformer.block_0.mlp"]
    assert row == ["blocks.0.mlp", "0", "of", "1", "parts", "here"]


def test_a_narrow_screen_cuts_no_name(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    path = "encoder.layer.11.attention.output.dense"
    _show_modules((*MODULE_COLUMNS, ""), [(path, "blocks.11.attn.proj", "3 of 4", "parts here")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    sentence = " ".join(" ".join(lines).split())
    assert sentence == f"{path} is A's blocks.11.attn.proj, results that A has 3 of 4, parts here"


def test_of_one_program_it_is_refused(capsys):
    flags = ["--bisect-precision", "bfloat16", "--bound", "0.1", "--modules"]
    assert main(["diff", "docs/port.py:original", *flags]) == 2
    assert "--modules goes with two programs" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["layer", "layer.0"])
def test_results_are_what_others_read(name):
    modules = {each.path: each for each in compared(jax.nn.sigmoid, jax.nn.sigmoid).modules}
    assert (modules[name].results, modules[name].same) == (1, 1)
