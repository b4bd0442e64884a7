"""How tyro reads flags: sizes of one or two numbers, dataclasses and schemas field by field."""

from __future__ import annotations

import dataclasses
import typing

import tyro
from pydantic import BaseModel
from tyro import constructors

from vit_config import Schema

registry = constructors.ConstructorRegistry()
"""The rules of this file, for `tyro.cli`."""


@registry.primitive_rule
def _size(info: constructors.PrimitiveTypeInfo) -> constructors.PrimitiveConstructorSpec | None:
    """A size is one integer, or two."""
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


@registry.primitive_rule
def _optional_schema(
    info: constructors.PrimitiveTypeInfo,
) -> constructors.PrimitiveConstructorSpec | None:
    """A schema that may be absent is one word of JSON."""
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


@registry.struct_rule
def _schema(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """A schema's fields, their docstrings as running text."""
    if not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
        return None
    hints = typing.get_type_hints(info.type, include_extras=True)
    return constructors.StructConstructorSpec(
        instantiate=info.type,
        fields=tuple(
            constructors.StructFieldSpec(
                name=name,
                type=hints[name],
                default=getattr(info.default, name),
                helptext=" ".join((field.description or "").split()),
            )
            for name, field in info.type.model_fields.items()
        ),
    )


@registry.struct_rule
def _dataclass(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """A dataclass's fields, their docstrings as running text: tyro keeps the lines of the source."""
    if not (isinstance(info.type, type) and dataclasses.is_dataclass(info.type)):
        return None
    hints = typing.get_type_hints(info.type, include_extras=True)
    return constructors.StructConstructorSpec(
        instantiate=info.type,
        fields=tuple(
            constructors.StructFieldSpec(
                name=field.name,
                type=hints[field.name],
                default=_default_of(field, info),
                helptext=lambda name=field.name, kind=info.type: _docstring_of(name, kind),
            )
            for field in dataclasses.fields(info.type)
        ),
    )


def _default_of(field: dataclasses.Field, info: constructors.StructTypeInfo) -> typing.Any:
    if isinstance(info.default, info.type):
        return getattr(info.default, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is dataclasses.MISSING else field.default


def _docstring_of(name: str, kind: type) -> str | None:
    """What stands below a field, in its class or one above."""
    import docstring_parser  # takes a while, and only help asks for it

    for each in kind.__mro__[:-1]:
        for param in docstring_parser.parse_from_object(each).params:
            if param.arg_name == name and param.description:
                return " ".join(param.description.split())
    return None
