"""Other people's models with one thing changed: is it caught, on its line, and named rightly?

Every operator, number, flag and pair of arguments in the code that a model runs is changed once
(`python tools/operation_mutants.py --count 20`). A mutant that crashes or changes no output is left out.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import random
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from parity.porting.verification.peers import import_timm
from parity.verifier.operations import Comparison, compare_programs, record
from parity.verifier.operations.program import Program

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
         ast.Gt: ast.LtE, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.LtE: ast.Gt}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of a source file."""

    module: str
    first: int
    last: int
    """Lines of the statement that was changed."""
    what: str
    tree: ast.Module


def mutants(module: str, executed: set[tuple[str, int]]) -> Iterator[Mutant]:
    """All changes of the lines of a module that a model runs."""
    file = str(importlib.import_module(module).__file__)
    with open(file, encoding="utf-8") as stream:
        source = stream.read()
    tree = ast.parse(source)
    statements = [s for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name != "__init__"
                  for s in ast.walk(f) if isinstance(s, ast.stmt) and _simple(s)]  # fmt: skip
    for statement in statements:
        last = statement.end_lineno or statement.lineno
        if not any((file, line) in executed for line in range(statement.lineno, last + 1)):
            continue
        for node in ast.walk(statement):
            for change, undo, what in _changes(node):
                change()
                yield Mutant(module, statement.lineno, last, what, copy.deepcopy(tree))
                undo()


def _simple(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)) and not (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _changes(node: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None], str]]:
    def to(name: str, new: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        old = getattr(node, name)
        return lambda: setattr(node, name, new), lambda: setattr(node, name, old)

    for name, child in ast.iter_fields(node):
        if isinstance(child, ast.BinOp) and isinstance(child.op, (ast.Add, ast.Mult)):
            yield *to(name, child.left), f"without one side of {type(child.op).__name__}"
        elif isinstance(child, ast.Call) and len(child.args) == 1 and _is_function(child.func):
            yield *to(name, child.args[0]), f"without {ast.unparse(child.func)}"
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
        yield (
            *to("op", SWAPS[type(node.op)]()),
            f"{type(node.op).__name__} -> {SWAPS[type(node.op)].__name__}",
        )
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield *to("ops", [SWAPS[type(node.ops[0])]()]), f"{type(node.ops[0]).__name__} turned"
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield *to("value", not node.value), f"{node.value} -> {not node.value}"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        new = node.value + 1 if isinstance(node.value, int) else node.value * 1.5
        yield *to("value", new), f"{node.value} -> {new}"
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        yield *to("args", [node.args[1], node.args[0], *node.args[2:]]), "two arguments exchanged"


def _is_function(func: ast.expr) -> bool:
    """Whether a call passes an array on: not a method of the array, nor a class of Python's."""
    text = ast.unparse(func)
    return text.startswith(("self.", "torch.", "nn.", "F.", "jax.", "jnp.", "layer_norm", "rms_norm"))


def mutated(model: Any, mutant: Mutant) -> Any:
    """The model with the classes, or the function, of a changed module in the place of the original."""
    original = importlib.import_module(mutant.module)
    changed = types.ModuleType(mutant.module + "_mutant")
    changed.__package__ = mutant.module.rpartition(".")[0]
    changed.__file__ = original.__file__
    sys.modules[changed.__name__] = changed
    exec(
        compile(ast.fix_missing_locations(mutant.tree), str(original.__file__), "exec"), changed.__dict__
    )
    if not isinstance(model, torch.nn.Module):
        return getattr(changed, model.__name__)
    other = copy.deepcopy(model)
    for each in other.modules():
        if type(each).__module__ == mutant.module:
            each.__class__ = getattr(changed, type(each).__name__)
    return other


def lines_of(program: Program) -> set[tuple[str, int]]:
    """The lines on which a program computes."""
    return {(op.source.file, op.source.line) for op in program.operations if op.source is not None}


def redrawn(model: torch.nn.Module) -> torch.nn.Module:
    """The model with weights that hide nothing: no zeros, no ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(
                torch.randn(p.shape, generator=generator) * (0.3 if p.ndim > 1 else 0.2) + (p.ndim == 1)
            )
    return model.eval()


def _hf(name: str, config: str, model: str, inputs: Any, **sizes: Any) -> Callable[[], Any]:
    def make() -> Any:
        package = importlib.import_module(f"transformers.models.{name}")
        cfg = getattr(package, config)(**sizes)
        cfg._attn_implementation = "eager"
        module = f"transformers.models.{name}.modeling_{name}"
        return redrawn(getattr(package, model)(cfg)), inputs(), [module]

    return make


def _jax(name: str) -> Callable[[], Any]:
    def make() -> Any:
        module = "tests.support.jax_families"
        families = importlib.import_module(module)
        return getattr(families, name), getattr(families, f"{name}_inputs")(), [module]

    return make


def _timm(name: str, modules: list[str], **sizes: Any) -> Callable[[], Any]:
    def make() -> Any:
        model = import_timm().create_model(name, **sizes)
        return redrawn(model), {"x": torch.from_numpy(_normal(2, 3, 32, 32))}, modules

    return make


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _images(size: int = 32) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"pixel_values": torch.from_numpy(_normal(2, 3, size, size))}


def _tokens(**more: Any) -> Callable[[], dict[str, Any]]:
    ids = torch.from_numpy(np.random.default_rng(2).integers(3, 90, (2, 7)))
    return lambda: {"input_ids": ids, **more}


_ENCODER = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 44}
_DECODER = _ENCODER | {"vocab_size": 97, "num_key_value_heads": 5, "head_dim": 6, "pad_token_id": 0}

_ENCODED_IMAGE = _ENCODER | {"image_size": 32, "patch_size": 8}
_TIMM_VIT = ["timm.models.vision_transformer", "timm.layers.attention", "timm.layers.mlp",
             "timm.layers.patch_embed"]  # fmt: skip
_DINO = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "mlp_ratio": 2}
_SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4]}
_T5 = {"vocab_size": 97, "d_model": 30, "d_kv": 6, "d_ff": 44, "num_layers": 2, "num_heads": 5}
_CLIP = _ENCODER | {"vocab_size": 97, "max_position_embeddings": 16}

MODELS: dict[str, Callable[[], Any]] = {
    "timm vit": _timm("vit_tiny_patch16_224", _TIMM_VIT, img_size=32, patch_size=8, embed_dim=30,
                      depth=2, num_heads=5, num_classes=11),
    "timm convnext": _timm("convnext_atto", ["timm.models.convnext", "timm.layers.norm"],
                           depths=(1, 1, 2, 1), dims=(6, 10, 14, 22), num_classes=11),
    "hf vit": _hf("vit", "ViTConfig", "ViTModel", _images(), **_ENCODED_IMAGE),
    "hf dinov2": _hf("dinov2", "Dinov2Config", "Dinov2Model", _images(), **_DINO, image_size=32,
                     patch_size=8),
    "hf bert": _hf("bert", "BertConfig", "BertModel", _tokens(), **_ENCODER, vocab_size=97),
    "hf llama": _hf("llama", "LlamaConfig", "LlamaModel", _tokens(use_cache=False), **_DECODER),
    "hf gemma": _hf("gemma", "GemmaConfig", "GemmaModel", _tokens(use_cache=False), **_DECODER),
    "hf swin": _hf("swin", "SwinConfig", "SwinModel", _images(), **_SWIN, window_size=4),
    "hf t5": _hf("t5", "T5Config", "T5EncoderModel", _tokens(), **_T5),
    "hf clip": _hf("clip", "CLIPTextConfig", "CLIPTextModel", _tokens(), **_CLIP),
    "hf convnext": _hf("convnext", "ConvNextConfig", "ConvNextModel", _images(),
                       hidden_sizes=[6, 10, 14], depths=[1, 2, 1], num_stages=3),
    "jax decoder": _jax("decoder"),
    "jax convnext": _jax("convnext"),
    "jax mixer": _jax("mixer"),
}  # fmt: skip


_SUMS = {"operation", "sign", "term left out", "one term too many", "residual left out", "left out"}
_FACTORS = {"operation", "factor", "number", "numbers", "scale left out", "one scale too many",
            "factor left out", "one factor too many", "epsilon", "arguments", "activation"}  # fmt: skip
_ORDERS = {"transposed", "reversed", "shifted", "halves exchanged", "axis split the other way round",
           "reshaped without moving axes", "axis", "slice", "index", "arguments"}  # fmt: skip
_TERMS = {"one term too many", "term left out", "bias left out", "gain left out", "left out",
          "one step too many", "norm left out", "one norm too many", "mask", "causal mask"}  # fmt: skip
NAMES = {
    "Add ->": _SUMS | _FACTORS,
    "Sub ->": _SUMS | _FACTORS,
    "Mult ->": _SUMS | _FACTORS,
    "Div ->": _SUMS | _FACTORS,
    "Pow ->": _SUMS | _FACTORS | {"left out"},
    "turned": _TERMS | {"operation"},
    "True": _TERMS | _ORDERS | _FACTORS,
    "False": _TERMS | _ORDERS | _FACTORS,
    "without": _TERMS | _SUMS | _FACTORS | {"other value read", "term left out of a part"},
    "exchanged": _ORDERS | _SUMS | {"operation", "other value read", "activation", "mask"},
    **{f"{digit} ->": _ORDERS | _FACTORS | _SUMS | _TERMS | {"other value read", "n - 1 for n"}
       for digit in "0123456789"},
}  # fmt: skip
"""What a change may rightly be called; any other name is printed as doubtful."""


@dataclass
class Score:
    """Of a model: mutants that change an output, those caught, those placed."""

    tried: int = 0
    caught: int = 0
    placed: int = 0
    first: int = 0
    """Placed with the first line that is printed."""
    named: int = 0
    doubtful: int = 0
    """Named with what the change cannot have been; each is printed."""
    seconds: float = 0.0


def judge(found: Comparison, mutant: Mutant, score: Score) -> str:
    """Enter one outcome; returns what to print."""
    file = str(importlib.import_module(mutant.module).__file__)
    span = range(mutant.first, mutant.last + 1)
    lines = [line for place in found.places for line in place.b.lines]
    if mutant.what.startswith("without"):  # what is missing stands on A's line
        lines = [line for place in found.places for line in (*place.a.lines, *place.b.lines)]
    score.tried += 1
    score.caught += found.verdict == "DIFFERENT"
    placed = any(line.file == file and line.line in span for line in lines)
    score.placed += placed
    score.first += bool(lines) and lines[0].file == file and lines[0].line in span
    named = {place.cause for place in found.places} - {""}
    score.named += bool(named)
    doubtful = named - {name for kind, names in NAMES.items() if kind in mutant.what for name in names}
    score.doubtful += bool(doubtful)
    causes = ", ".join(place.cause or place.kind for place in found.places)
    said = ", ".join(dict.fromkeys(map(str, lines))) or "nothing"
    outcome = "NAMED?" if placed and doubtful else "placed" if placed else "MISSED"
    return f"{outcome} {mutant.module}:{mutant.first} {mutant.what}; said {said} ({causes})"


def main() -> None:
    """Print the score of every model and the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="mutants of a model")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--all", action="store_true", help="print every mutant, not only what was missed"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the models are small
    warnings.simplefilter("ignore")  # a copy of a module registers its models a second time
    if not all(name.startswith("jax") for name in arguments.models):
        import_timm()  # before transformers looks for torchvision
    total = Score()
    columns = ("tried", "caught", "placed", "first", "named", "doubt", "s each")
    print(f"{'':16} {' '.join(f'{each:>6}' for each in columns)}", flush=True)
    for name in arguments.models:
        score = Score()
        model, inputs, modules = MODELS[name]()
        original = record((model, inputs), "A")
        executed = lines_of(original)
        choices = [m for module in modules for m in mutants(module, executed)]
        random.Random(arguments.seed).shuffle(choices)
        for mutant in choices:
            if score.tried >= arguments.count:
                break
            try:
                other = record((mutated(model, mutant), inputs), "B")
            except Exception:  # a mutant that cannot run is no mutant
                continue
            started = time.perf_counter()
            found = compare_programs(original, other)
            if found.verdict == "EQUAL" or found.error < 1e-12:
                continue
            said = judge(found, mutant, score)
            score.seconds += time.perf_counter() - started
            if arguments.all or not said.startswith("placed"):
                print("   ", said, flush=True)
        print(_row(name, score), flush=True)
        for field in ("tried", "caught", "placed", "first", "named", "doubtful", "seconds"):
            setattr(total, field, getattr(total, field) + getattr(score, field))
    print(_row("all", total))


def _row(name: str, score: Score) -> str:
    each = score.seconds / max(score.tried, 1)
    numbers = (score.tried, score.caught, score.placed, score.first, score.named, score.doubtful)
    return f"{name:16} {' '.join(f'{n:6}' for n in numbers)} {each:6.1f}"


if __name__ == "__main__":
    main()
