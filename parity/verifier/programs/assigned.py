"""Where the names that a line reads were given their values, as far as a file's text tells."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Iterator
from functools import cache

from parity.verifier.programs.operation import Source

MOST = 3
"""Most lines that are returned."""
_Name = tuple[str, bool]
"""A name, and whether it is that of an attribute."""


def assigned_at(line: Source, ran: Collection[int]) -> list[Source]:
    """Return the lines of the same file that give names which a line reads their values.

    Args:
        line: the line.
        ran: lines of that file that are known to run operations: what they compute is recorded, and is
            not what is looked for.
    """
    tree = _tree(line.file)
    if tree is None:
        return []
    inside = _scopes(tree, line.line)
    read = {name for each in ast.walk(tree) if _on(each, line.line) for name in _names(each, ast.Load)}
    found: dict[int, None] = {}
    for scope in reversed(inside):
        for statement in ast.walk(scope):
            number = getattr(statement, "lineno", 0)
            given = set() if number in ran else _given(statement)
            attributes = isinstance(scope, ast.ClassDef)
            local = isinstance(scope, ast.Module) and statement not in scope.body
            if given and any(n in read and n[1] == attributes for n in given) and not local:
                found[number] = None
    return [Source(line.file, number, "") for number in list(found)[:MOST]]


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _given(statement: ast.AST) -> set[_Name]:
    """Return the names to which a statement gives values."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        if not any(isinstance(each, ast.Call) for each in ast.walk(statement)):
            return set()  # a number, or another name
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {n for each in targets for node in ast.walk(each) for n in _names(node, ast.Store)}
    if isinstance(statement, ast.Call) and getattr(statement.func, "attr", "") == "register_buffer":
        first = statement.args[0] if statement.args else None
        return {(str(first.value), True)} if isinstance(first, ast.Constant) else set()
    return set()


def _scopes(tree: ast.Module, line: int) -> list[ast.AST]:
    """Return the scopes around a line, the outermost first."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    around = [each for each in ast.walk(tree) if isinstance(each, kinds) and _on(each, line)]
    return [tree, *sorted(around, key=lambda each: getattr(each, "lineno", 0))]


def _on(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _names(node: ast.AST, context: type) -> Iterator[_Name]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, context):
        yield node.id, False
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, context):
        yield node.attr, True
