"""The rules by which tyro reads the flags of schemas: field by field, sizes as one or two numbers."""

from __future__ import annotations

import typing

from pydantic import BaseModel
from tyro import constructors

from parity.cli.support.flag_rules import dataclass_rule, fields_spec
from vit_config import Schema

registry = constructors.ConstructorRegistry()
"""The rules of this file and that of dataclasses, for `tyro.cli`."""
registry.struct_rule(dataclass_rule)


@registry.primitive_rule
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


@registry.primitive_rule
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


@registry.struct_rule
def _schema(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """Return a schema's flags, with docstrings as running text."""
    if not (isinstance(info.type, type) and issubclass(info.type, BaseModel)):
        return None
    return fields_spec(info, {name: getattr(info.default, name) for name in info.type.model_fields})
