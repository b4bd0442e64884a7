"""Every mutant of a source, by its syntax tree."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from vit_config.errors import first_line

OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip
"""The operator that replaces another."""


@dataclass(frozen=True)
class Mutant:
    """A source that differs from the file's in one expression."""

    original: str
    """The file's text."""
    number: int
    """Number of the node that changes; below, that of the change among the node's."""
    choice: int
    line: int
    column: int
    before: str
    after: str
    lines: frozenset[int]
    """Those of the smallest statement that holds the change."""
    function: str
    """The qualified name of the outermost function that holds the change; empty outside of all."""
    like: int
    """Number of lines above with the same text."""

    @cached_property
    def tree(self) -> ast.Module:
        """The mutant's syntax tree."""
        tree = ast.parse(self.original)
        _changes(list(ast.walk(tree))[self.number])[self.choice]()
        return ast.fix_missing_locations(tree)

    @property
    def source(self) -> str:
        """The mutant as a file."""
        return ast.unparse(self.tree)

    @property
    def change(self) -> str:
        """The difference, in one line."""
        before, after = self.before, self.after
        if _short(before) == _short(after):
            same = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
            before, after = before[same:], after[same:]
        return f"{_short(before)} → {_short(after)}"

    @property
    def name(self) -> tuple[str, str]:
        """The text of its line, and the change: what another change of the file leaves as it is."""
        text = self.original.splitlines()[self.line - 1]
        column = self.column - len(text) + len(text.lstrip())
        again = f", after {self.like} like it" if self.like else ""
        return text.strip(), f"{self.change} at {column}{again}"


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a source."""
    tree = ast.parse(source)
    types, statements, homes = _types(tree), _statements(tree), _homes(tree)
    texts = [each.strip() for each in source.splitlines()]
    for number, node in enumerate(ast.walk(tree)):
        for choice in range(len(_changes(node)) if id(node) not in types else 0):
            changed = copy.deepcopy(node)
            _changes(changed)[choice]()
            lines, home = statements[id(node)], homes.get(id(node), "")
            line, column = getattr(node, "lineno", min(lines)), getattr(node, "col_offset", 0)
            like = texts[: line - 1].count(texts[line - 1])
            heads = _head(node), _head(changed)
            yield Mutant(source, number, choice, line, column, *heads, lines, home, like)


def shuffled(file: str, source: str, seed: int) -> list[Mutant]:
    """Every mutant of a file, in an order that an edit leaves as it is for all other lines."""

    def place(mutant: Mutant) -> bytes:
        return hashlib.sha256("\n".join([str(seed), file, *mutant.name]).encode()).digest()

    return sorted(mutants(source), key=place)


def telling(source: str, name: str) -> ast.Module:
    """A source whose functions call ``_reached(name, line)`` before each of their statements."""
    tree = ast.parse(source)
    within = _homes(tree)
    for node in list(ast.walk(tree)):
        if not isinstance(node, ast.FunctionDef) and id(node) not in within:
            continue
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements:
                groups = [
                    [each] if _is_text(each) else [_reached(name, each.lineno), each]
                    for each in statements
                ]
                setattr(node, field, [each for some in groups for each in some])
    return ast.fix_missing_locations(tree)


def _is_text(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant(value=str())):
            return True
    return False


def _reached(name: str, line: int) -> ast.Expr:
    arguments: list[ast.expr] = [ast.Constant(name), ast.Constant(line)]
    return ast.Expr(ast.Call(ast.Name("_reached", ast.Load()), arguments, []))


def _changes(node: ast.AST) -> list[Callable[[], None]]:
    """The ways to change a node, each a call that does it."""
    changes: list[Callable[[], None]] = []
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHER:
            changes.append(lambda: setattr(node, "op", OTHER[type(node.op)]()))
        case ast.Compare() if type(node.ops[0]) in OTHER:
            changes.append(lambda: node.ops.__setitem__(0, OTHER[type(node.ops[0])]()))
        case ast.Constant(value=bool()):
            changes.append(lambda: setattr(node, "value", not node.value))
        case ast.Constant(value=int() | float() as value):
            changes.append(lambda: setattr(node, "value", value + 1))
        case ast.If() | ast.IfExp():
            changes.append(lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))
        case ast.comprehension(ifs=[_, *_]):
            changes.append(node.ifs.clear)
        case ast.Call():
            given = node.keywords
            changes.extend(lambda each=each: given.remove(each) for each in given if each.arg)
    return changes


def _types(tree: ast.Module) -> set[int]:
    """The ids of the nodes of annotations."""
    fields = ("annotation", "returns")
    written = [getattr(node, each, None) for node in ast.walk(tree) for each in fields]
    return {id(part) for each in written if each is not None for part in ast.walk(each)}


def _homes(tree: ast.Module) -> dict[int, str]:
    """The outermost function of every node in the body of one, by the node's id."""
    inside: dict[int, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                visit(statement.body, f"{prefix}{statement.name}.")
            elif isinstance(statement, ast.FunctionDef):
                for part in statement.body:
                    inside.update((id(each), prefix + statement.name) for each in ast.walk(part))

    visit(tree.body, "")
    return inside


def _statements(tree: ast.Module) -> dict[int, frozenset[int]]:
    """The lines of the smallest statement around every node, without those of its body, by its id."""
    lines_of: dict[int, frozenset[int]] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            body = getattr(node, "body", None)
            first = getattr(node, "lineno", 0) or node.pattern.lineno  # type: ignore[union-attr]
            last = body[0].lineno - 1 if body else node.end_lineno or 0  # type: ignore[union-attr]
            lines = frozenset(range(first, max(first, last) + 1))
            lines_of.update((id(each), lines) for each in ast.walk(node))
    return lines_of


def _head(node: ast.AST) -> str:
    """An expression, or what a statement begins with."""
    if isinstance(node, ast.comprehension):
        return ast.unparse(ast.ListComp(ast.Name("_"), [node]))
    return first_line(ast.unparse(node))


def _short(text: str) -> str:
    return text if len(text) <= 70 else f"{text[:50]} ... {text[-14:]}"
