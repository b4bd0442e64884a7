"""One change of a model: of a statement that it runs, or of a number that one of its modules holds."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from parity.verifier.programs.program import Program

Lines = frozenset[tuple[str, int]]
"""File and line."""

OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
             ast.Gt: ast.LtE, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.LtE: ast.Gt}  # fmt: skip
FUNCTIONS = {"cos": "sin", "sin": "cos", "mean": "sum", "sum": "mean", "max": "min", "amax": "amin",
             "gelu": "silu", "silu": "relu", "relu": "silu", "tanh": "sigmoid", "rsqrt": "sqrt",
             "sqrt": "exp", "softmax": "log_softmax", "exp": "expm1", "pow": "mul",
             "tril": "triu", "logsumexp": "max"}  # fmt: skip
HELD = ("eps", "variance_epsilon", "scaling", "scale", "num_heads", "stride", "padding", "dilation",
        "kernel_size", "approximate", "is_causal", "shift_size", "count_include_pad")  # fmt: skip
"""Attributes of modules, besides parameters, that change their function."""


@dataclass(frozen=True)
class Mutant:
    """One change."""

    kind: str
    """The title of `KINDS` in `judging.py`."""
    place: str
    """Module and line, or the path of a module."""
    what: str
    lines: Lines
    """Lines of which one has to be printed for the change to count as placed."""
    apply: Callable[[Any], Any]
    """Function from a model to the model with the change."""
    key: str
    """Unique among the mutants of a model."""

    @property
    def is_omission(self) -> bool:
        """Whether something was left out, which then stands on A's side alone."""
        return self.kind in ("term or factor left out", "call left out", "keyword left out")


def mutants(model: Any, program: Program, modules: list[str]) -> Iterator[Mutant]:
    """All changes of a model.

    Args:
        model: a torch.nn.Module or a function.
        program: what it runs.
        modules: names of the modules whose statements are changed.
    """
    executed = lines_of(program)
    for module in modules:
        yield from _of_statements(module, executed)
    if isinstance(model, torch.nn.Module):
        yield from _of_modules(model, program)


def lines_of(program: Program) -> set[tuple[str, int]]:
    """The lines on which a program computes."""
    return {(op.source.file, op.source.line) for op in program.operations if op.source is not None}


def _of_statements(module: str, executed: set[tuple[str, int]]) -> Iterator[Mutant]:
    file = str(importlib.import_module(module).__file__)
    with open(file, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    functions = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name != "__init__"]
    statements = dict.fromkeys(s for f in functions for s in ast.walk(f) if isinstance(s, ast.stmt))
    for statement in statements:  # those of functions within functions once
        span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        lines = frozenset((file, line) for line in span)
        if not _is_simple(statement) or not lines & executed:
            continue
        for node in ast.walk(statement):
            for number, (change, undo, kind, what) in enumerate(_changes(node)):
                where = f"{getattr(node, 'lineno', statement.lineno)}:{getattr(node, 'col_offset', 0)}"
                yield Mutant(
                    kind, f"{module.rpartition('.')[2]}:{statement.lineno}", what, lines,
                    _changed(module, tree, file, change, undo),
                    f"{module}:{where}:{type(node).__name__}:{number}:{what}",
                )  # fmt: skip


def _is_simple(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)) and not (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _changes(node: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None], str, str]]:
    """How to change a node and to change it back, the kind and the words."""

    def to(name: str, new: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        old = getattr(node, name)
        return lambda: setattr(node, name, new), lambda: setattr(node, name, old)

    for name, child in ast.iter_fields(node):
        if isinstance(child, ast.BinOp) and isinstance(child.op, (ast.Add, ast.Mult)):
            for side in ("left", "right"):
                what = f"without {ast.unparse(getattr(child, 'right' if side == 'left' else 'left'))}"
                yield *to(name, getattr(child, side)), "term or factor left out", what
        elif isinstance(child, ast.Call) and len(child.args) == 1 and _is_function(child.func):
            yield *to(name, child.args[0]), "call left out", f"without {ast.unparse(child.func)}"
        elif isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.USub) and not _is_number(child):
            yield *to(name, child.operand), "sign", f"{ast.unparse(child)} without its sign"
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        new = OPERATORS[type(node.op)]
        yield *to("op", new()), "operator", f"{type(node.op).__name__} -> {new.__name__}"
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        turned = OPERATORS[type(node.ops[0])]
        yield *to("ops", [turned()]), "operator", f"{type(node.ops[0]).__name__} -> {turned.__name__}"
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield *to("value", not node.value), "flag", f"{node.value} -> {not node.value}"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        old: Any = node.value
        new = old + 1 if isinstance(old, int) else old * 1.5
        yield *to("value", new), "number or axis", f"{node.value} -> {new}"
    elif isinstance(node, ast.Slice) and bool(node.lower) != bool(node.upper):
        yield _turned(node)
    elif isinstance(node, ast.Call):
        yield from _changes_of_call(node, to)


def _is_number(node: ast.UnaryOp) -> bool:
    return isinstance(node.operand, ast.Constant)


def _changes_of_call(node: ast.Call, to: Callable[..., Any]) -> Iterator[Any]:
    if len(node.args) >= 2:
        what = f"{ast.unparse(node.args[0])}, {ast.unparse(node.args[1])} exchanged"
        yield *to("args", [node.args[1], node.args[0], *node.args[2:]]), "arguments exchanged", what
    for keyword in node.keywords:
        if keyword.arg is not None:
            rest = [each for each in node.keywords if each is not keyword]
            yield *to("keywords", rest), "keyword left out", f"without {ast.unparse(keyword)}"
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in FUNCTIONS:
        old, new = node.func, copy.copy(node.func)
        setattr(new, "attr" if hasattr(new, "attr") else "id", FUNCTIONS[name])
        yield (
            lambda: setattr(node, "func", new), lambda: setattr(node, "func", old),
            "function", f"{name} -> {FUNCTIONS[name]}",
        )  # fmt: skip


def _turned(node: ast.Slice) -> tuple[Callable[[], None], Callable[[], None], str, str]:
    def turn() -> None:
        node.lower, node.upper = node.upper, node.lower

    return turn, turn, "slice", f"[{ast.unparse(node)}] its other part"


def _is_function(func: ast.expr) -> bool:
    """Whether a call passes an array on: not a method of the array, nor a class of Python's."""
    text = ast.unparse(func)
    modules = ("self.", "torch.", "nn.", "nnx.", "F.", "jax.", "jnp.")
    return text.startswith((*modules, "layer_norm", "rms_norm"))


def _changed(
    module: str, tree: ast.Module, file: str, change: Callable[[], None], undo: Callable[[], None]
) -> Callable[[Any], Any]:
    """From a model to the model with a change of a module's code, which is made when it is asked for."""

    def apply(model: Any) -> Any:
        change()
        try:
            code = compile(ast.fix_missing_locations(tree), file, "exec")
        finally:
            undo()
        return _with_module(model, module, code)

    return apply


def _with_module(model: Any, module: str, code: types.CodeType) -> Any:
    """The model with the classes, or the function, of a changed module in the place of the original."""
    original = importlib.import_module(module)
    changed = types.ModuleType(module + "_mutant")
    changed.__package__ = module.rpartition(".")[0]
    changed.__file__ = original.__file__
    sys.modules[changed.__name__] = changed
    exec(code, changed.__dict__)
    if not isinstance(model, torch.nn.Module):
        return getattr(changed, model.__name__)
    other = copy.deepcopy(model)
    for each in other.modules():
        if type(each).__module__ == module:
            each.__class__ = getattr(changed, type(each).__name__)
    return other


def _of_modules(model: torch.nn.Module, program: Program) -> Iterator[Mutant]:
    """Changes of what modules hold: of every class and name the first module."""
    seen = set()
    for path, module in model.named_modules():
        for name in HELD:
            old = getattr(module, name, None)
            kind = (type(module), name, path.rpartition(".")[2])
            unread = name == "kernel_size" and isinstance(module, torch.nn.Conv2d)
            if not path or unread or kind in seen or not isinstance(old, (int, float, str, tuple)):
                continue
            seen.add(kind)
            lines = _lines_of_module(module, name, path, program)
            for new in _other_values(old) if lines else ():
                yield Mutant(
                    "what a module holds", path, f"{name} {old} -> {new}", lines,
                    lambda model, path=path, name=name, new=new: _with_held(model, path, name, new),
                    f"{path}.{name}:{new}",
                )  # fmt: skip


def _other_values(old: Any) -> Iterator[Any]:
    if isinstance(old, bool):
        yield not old
    elif isinstance(old, float):
        yield old * (10 if old < 1e-3 else 1.5)
    elif isinstance(old, int):
        yield old + 1
    elif isinstance(old, str) and old in ("none", "tanh"):
        yield "tanh" if old == "none" else "none"
    elif isinstance(old, tuple) and all(isinstance(each, int) for each in old):
        yield tuple(each + 1 for each in old)


def _lines_of_module(module: Any, name: str, path: str, program: Program) -> Lines:
    """Where a number that a module holds has its effect: where its own code names it, or where the
    framework's module is called."""
    if not type(module).__module__.startswith("torch."):
        file = str(inspect.getsourcefile(type(module)))
        with open(file, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
        classes = [
            c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == type(module).__name__
        ]
        methods = [f for c in classes for f in c.body if isinstance(f, ast.FunctionDef)]
        inside = [f for f in methods if f.name not in ("__init__", "extra_repr")]
        given = [f for f in tree.body if isinstance(f, ast.FunctionDef) and name in _parameters(f)]
        return frozenset(
            (file, line)
            for f in (*inside, *given)
            for s in ast.walk(f)
            if isinstance(s, ast.stmt) and _is_simple(s) and _names(s, name, f in given)
            for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)
        )
    return frozenset(
        (op.source.file, op.source.line)
        for op in program.operations
        if op.source is not None and op.module == path
    )


def _parameters(function: ast.FunctionDef) -> set[str]:
    return {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}


def _names(statement: ast.stmt, name: str, is_parameter: bool) -> bool:
    """Whether a statement reads `self.name`, or the parameter that it was given as."""
    if is_parameter:
        return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(statement))
    return any(isinstance(each, ast.Attribute) and each.attr == name for each in ast.walk(statement))


def _with_held(model: torch.nn.Module, path: str, name: str, new: Any) -> torch.nn.Module:
    other = copy.deepcopy(model)
    setattr(other.get_submodule(path), name, new)
    return other
