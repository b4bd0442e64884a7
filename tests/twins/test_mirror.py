"""The twins are the same word for word: files, classes, functions, arguments, attribute paths."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from flax import nnx
from torch import nn

import vit_jax.leaves
import vit_jax.weights
import vit_torch.leaves
import vit_torch.weights
from tests.support.tiny import VARIANTS, variant

pytestmark = [pytest.mark.versions, pytest.mark.quick]

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name for path in (ROOT / "vit_jax").glob("*.py"))
# what only a functional, compiled framework has: a model as a pure function of its parameters; sums of
# gradients that its compiler makes too narrow; derivatives that it makes too slow; its options; where
# its temporaries lie; a loop over blocks, which nobody has to compile elsewhere; and devices that share
# a batch
JAX_ONLY = {
    "functional.py",
    "linear.py",
    "rules.py",
    "compiling.py",
    "host_memory.py",
    "scanned.py",
    "stacks.py",
    "shares.py",
}
# what only one side's framework makes necessary
PRIVATE = {
    "weights": {"to_numpy"},  # numpy has no bfloat16
    "patch": {"PatchConv"},  # XLA leaves a convolution to cuDNN, which takes ten times as long
    # optax's Adam loses digits in float32, torch has no LAMB, and its groups scale layers
    "optim": {"scale_by_adam", "scale_by_layer", "Lamb"},
    "kernels": {"weights_formed"},  # what JAX chooses by itself always forms them
    "step": {"TrainState", "init_state"},  # torch keeps its state in the model and the optimiser
}
# a loop over blocks has none of what is between them
COMPILED = {"run_all", "each"}
# a functional framework is handed what a stateful one keeps here: names mirror, arguments do not
FUNCTIONAL = {"init", "optim", "step"}


def test_same_files():
    torch_files = sorted(path.name for path in (ROOT / "vit_torch").glob("*.py"))
    assert [name for name in FILES if name not in JAX_ONLY] == torch_files


def _public(twin, module):
    tree = ast.parse((ROOT / twin / f"{module}.py").read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [node.name for node in nodes if not node.name.startswith("_")]


@pytest.mark.parametrize("file", [name for name in FILES if name not in JAX_ONLY])
def test_same_classes_and_functions(file):
    module = file.removesuffix(".py")
    ours = [name for name in _public("vit_jax", module) if name not in PRIVATE.get(module, ())]
    theirs = [name for name in _public("vit_torch", module) if name not in PRIVATE.get(module, ())]
    assert ours == theirs


def _rooms():
    for file in FILES:
        module = file.removesuffix(".py")
        if file in JAX_ONLY or module in FUNCTIONAL or module == "__init__":
            continue
        modules = [importlib.import_module(f"{twin}.{module}") for twin in ("vit_jax", "vit_torch")]
        for name in _public("vit_jax", module):
            if name not in PRIVATE.get(module, ()):
                yield pytest.param(*(vars(each)[name] for each in modules), id=f"{module}.{name}")


def _arguments(function):
    parameters = list(inspect.signature(function).parameters.values())
    of_images = {"NHWC": "their layout", "NCHW": "their layout"}  # each framework's own
    of_jax = {"rngs", *COMPILED}
    return [
        (p.name, of_images.get(str(p.default), p.default)) for p in parameters if p.name not in of_jax
    ]


@pytest.mark.parametrize(("ours", "theirs"), list(_rooms()))
def test_same_arguments(ours, theirs):
    if not inspect.isclass(ours):
        assert _arguments(ours) == _arguments(theirs)
        return
    if issubclass(ours, tuple):  # a leaf of JAX also knows its layout
        assert set(theirs._fields) <= set(ours._fields)
        return
    if "__init__" in vars(ours):
        assert _arguments(ours.__init__) == _arguments(theirs.__init__)
    if "__call__" in vars(ours):  # a part of other classes has none
        assert _arguments(ours.__call__) == _arguments(theirs.forward)
    own = {name for name in vars(ours) if not name.startswith("_")}
    own -= COMPILED
    assert own == {name for name in vars(theirs) if not name.startswith("_") and name != "forward"}
    for name in own:
        if inspect.isfunction(vars(ours)[name]):
            assert _arguments(vars(ours)[name]) == _arguments(vars(theirs)[name])


QUICK = ("plain", "branches", "rope_mixed", "map")  # what `make quick` looks at


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in VARIANTS]
)
def test_same_attribute_paths(name):
    ours = vit_jax.weights.abstract_model(variant(name))
    theirs = vit_torch.weights.abstract_model(variant(name))
    assert {".".join(map(str, path)) for path, _ in vit_jax.leaves.walk(ours)} == {
        path for path, part in vit_torch.leaves.walk(theirs) if not isinstance(part, nn.ModuleList)
    }
    left = {(leaf.name, leaf.kind, leaf.shape) for leaf in vit_jax.leaves.leaves(ours)}
    assert left == {(leaf.name, leaf.kind, leaf.shape) for leaf in vit_torch.leaves.leaves(theirs)}
    assert isinstance(ours, nnx.Module)
