"""The packages' own source, read by tests that look for what no code may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("vit_config", "vit_train", "vit_jax", "vit_torch", "parity")


@cache
def _tree(path: Path) -> ast.Module:
    return resolved(ast.parse(path.read_text(encoding="utf-8")))


def resolved(tree: ast.Module) -> ast.Module:
    """Note on each name that a module imports from another library what it is there."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom):
            ours = (node.module or ".").partition(".")[0] in PACKAGES
            known |= {each.asname or each.name: each.name if ours else f"{node.module}.{each.name}"
                      for each in node.names}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            node.imported = known[node.id]  # type: ignore[attr-defined]
    return tree


def modules_of(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Each module below some folders, by default of all packages: its path, and its tree."""
    for folder in folders or PACKAGES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), _tree(path)


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call in a tree."""
    return (each for each in ast.walk(tree) if isinstance(each, ast.Call))


def name_of(call: ast.Call) -> str:
    """The dotted name of what is called, such as ``os.replace``, however it was imported; an expression
    before it is left out."""
    parts, node = [], call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    first = [getattr(node, "imported", node.id)] if isinstance(node, ast.Name) else []
    return ".".join([*first, *reversed(parts)])
