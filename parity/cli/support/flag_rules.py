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
from pydantic import BaseModel
from tyro import constructors

from vit_config import Schema

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


schema_registry = constructors.ConstructorRegistry()
"""The rules of this file and that of dataclasses, for `tyro.cli`."""
schema_registry.struct_rule(dataclass_rule)


@schema_registry.primitive_rule
def _size(info: constructors.PrimitiveTypeInfo) -> constructors.PrimitiveConstructorSpec | None:
    """Read a size from one integer, or two."""
    sides_given = typing.get_args(info.type)
    if typing.get_origin(info.type) is not tuple or len(sides_given) != 2 or ... in sides_given:
        return None
    if float in (sides_given[0], *typing.get_args(sides_given[0])):
        return None  # a range, as tyro reads it

    def sides(words: list[str]) -> tuple[int, int]:
        if len(words) not in (1, 2) or not all(word.isdecimal() for word in words):
            raise ValueError(f"takes one or two whole numbers, not {' '.join(words) or 'none'}")
        return int(words[0]), int(words[-1])

    return constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="H [W]",
        instance_from_str=sides,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(side) for side in value],
    )


@schema_registry.primitive_rule
def _optional_schema(
    info: constructors.PrimitiveTypeInfo,
) -> constructors.PrimitiveConstructorSpec | None:
    """Read a schema that may be absent from one word of JSON."""
    kinds = [kind for kind in typing.get_args(info.type) if kind is not type(None)]
    if len(kinds) != 1 or not (isinstance(kinds[0], type) and issubclass(kinds[0], Schema)):
        return None

    def read_json(words: list[str]) -> Schema | None:
        return None if words == ["null"] else kinds[0].from_json(words[0])

    return constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{null,JSON}",
        instance_from_str=read_json,
        is_instance=lambda value: value is None or isinstance(value, kinds[0]),
        str_from_instance=lambda value: ["null" if value is None else value.to_json()],
    )


@schema_registry.struct_rule
def _schema(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """Return a schema's flags, with docstrings as running text."""
    if not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
        return None
    return fields_spec(info, {name: getattr(info.default, name) for name in info.type.model_fields})
