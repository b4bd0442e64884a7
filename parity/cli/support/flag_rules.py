"""The rules by which tyro reads flags: dataclasses and schemas field by field, docstrings as help."""

from __future__ import annotations

import ast
import dataclasses
import sys
import typing
from functools import cache
from itertools import pairwise
from pathlib import Path

import tyro
from tyro import constructors

registry = constructors.ConstructorRegistry()
"""The rule of this file, for `tyro.cli`."""


@registry.struct_rule
def dataclass_rule(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """Return a dataclass's flags; the line breaks of their docstrings are taken out for the help."""
    if not (isinstance(info.type, type) and dataclasses.is_dataclass(info.type)):
        return None
    defaults = {field.name: _default_of(field, info) for field in dataclasses.fields(info.type)}
    return fields_spec(info, defaults)


def fields_spec(
    info: constructors.StructTypeInfo, defaults: dict[str, typing.Any]
) -> constructors.StructConstructorSpec:
    """Return a flag for each of these fields of a class: its type, its docstring and this default."""
    hints = typing.get_type_hints(info.type, include_extras=True)
    return constructors.StructConstructorSpec(
        instantiate=info.type,
        fields=tuple(
            constructors.StructFieldSpec(
                name=name,
                type=hints[name],
                default=default,
                helptext=lambda name=name, kind=info.type: docstring_of(name, kind),
            )
            for name, default in defaults.items()
        ),
    )


def _default_of(field: dataclasses.Field, info: constructors.StructTypeInfo) -> typing.Any:
    if isinstance(info.default, info.type):
        return getattr(info.default, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is dataclasses.MISSING else field.default


def docstring_of(name: str, kind: type) -> str | None:
    """Return the docstring below a field, in its class or a base class, as running text."""
    return next((docs[name] for each in kind.__mro__[:-1] if name in (docs := _docstrings(each))), None)


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field that a class itself has, as running text."""
    body = _classes(kind.__module__).get(kind.__qualname__, [])
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class at the top of a module, which is parsed once for all."""
    try:
        source = Path(sys.modules[module].__file__ or "").read_bytes()
    except OSError:  # installed without its source: flags without help
        return {}
    return {each.name: each.body for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}
