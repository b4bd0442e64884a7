"""A ready-made layer is shown where it is built: its own lines say nothing of the model."""

from __future__ import annotations

import numpy as np
import pytest

TORCH = """
import torch

class Block(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.up = torch.nn.Linear(5, 7)
        self.norm = torch.nn.LayerNorm(
            7, eps)
    def forward(self, x):
        return self.norm(self.up(x))

def side(eps):
    torch.manual_seed(0)
    return Block(eps).eval(), torch.linspace(-1, 1, 15).reshape(3, 5)
"""
NNX = """
import numpy as np
from flax import nnx

class Block(nnx.Module):
    def __init__(self, eps, rngs):
        up = nnx.Linear(5, 7, rngs=rngs)
        norm = nnx.LayerNorm(7, epsilon=eps, rngs=rngs)
        self.layers = nnx.List([up, norm])
    def __call__(self, x):
        return self.layers[1](self.layers[0](x))

def side(eps):
    return Block(eps, nnx.Rngs(0)), np.linspace(-1, 1, 15).reshape(3, 5)
"""
SIDES = """
def a():
    return side(1e-6)

def b():
    return side(1e-3)
"""


@pytest.mark.parametrize("code", [TORCH, NNX], ids=["torch", "nnx"])
def test_a_module_is_shown_where_it_is_built(tmp_path, code):
    """A constructor gives a layer its epsilon; the line that runs the layer says nothing of it."""
    import parity

    file = tmp_path / "built.py"
    file.write_text(code + SIDES)
    comparison = parity.diff(f"{file}:a", f"{file}:b")
    assert comparison.causes == ("epsilon",)
    lines = [line.line for line in comparison.places[0].b.lines]
    assert lines == [11, 8], comparison.to_text()
    assert np.isfinite(comparison.places[0].error)


GROUPS = """
import torch

class Block(torch.nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.norm = torch.nn.GroupNorm(
            groups, 8)
    def forward(self, x):
        return self.norm(x.mT)

def side(groups):
    return Block(groups).eval(), torch.linspace(0, 2, 80).reshape(2, 5, 8) ** 2

def a():
    return side(2)

def b():
    return side(4)
"""
GROUPS_NNX = """
import numpy as np
from flax import nnx

class Block(nnx.Module):
    def __init__(self, groups, rngs):
        self.norm = nnx.GroupNorm(8, num_groups=groups, rngs=rngs)
    def __call__(self, x):
        return self.norm(x)

def side(groups):
    return Block(groups, nnx.Rngs(0)), np.linspace(0, 2, 80).reshape(2, 5, 8) ** 2

def a():
    return side(2)

def b():
    return side(4)
"""


@pytest.mark.parametrize(
    ("code", "line"), [(GROUPS, "GroupNorm(groups, 8"), (GROUPS_NNX, "num_groups=groups")]
)
@pytest.mark.parametrize("causes", [("groups",), ()], ids=["groups", "groups and epsilon"])
def test_a_ready_made_layer_is_shown_where_it_is_built_with_a_cause_or_without(
    tmp_path, code, line, causes
):
    """What nobody wrote is wrong by its arguments alone; two that are wrong have no name."""
    import parity

    if not causes:
        code = code.replace("groups, 8)", "groups, 8, 0.1**groups)")
        code = code.replace("num_groups=groups", "num_groups=groups, epsilon=0.1**groups")
    file = tmp_path / "groups.py"
    file.write_text(code)
    comparison = parity.diff(f"{file}:a", f"{file}:b")
    assert comparison.causes == causes, comparison.to_text()
    assert any(line in each.text for each in comparison.places[0].b.lines), comparison.to_text()


def test_modules_that_are_equal_have_lines_of_their_own():
    from flax import nnx

    from parity.verifier.programs.built import built_of_nnx, watch_building

    class Scale(nnx.Module):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

    class Net(nnx.Module):
        def __init__(self):
            self.a = Scale()
            self.b = Scale()

    made = type(nnx.Module).__dict__.get("__call__")
    with watch_building(), watch_building():
        model = Net()
    lines = {path: each.source.line for path, each in built_of_nnx(model).items()}
    assert lines["b"] == lines["a"] + 1
    assert model.a == model.b
    assert type(nnx.Module).__dict__.get("__call__") is made
