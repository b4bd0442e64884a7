"""What of an archive of torch.export (``.pt2``) torch would run as it opens it, found without torch.

Its loader evaluates expressions, falls back to pickles that call, loads compiled libraries, and writes
names into Python that it compiles. An archive that the twins' export writes has none of these.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.porting.formats.archive import Archive
from parity.porting.formats.budget import Budget, budget_of
from parity.porting.formats.torch_zip import prefix_of, read_pickle
from vit_config.errors import WeightsError, first_line
from vit_config.files.foreign import parse_json
from vit_config.files.lasting import lasting
from vit_config.files.stored import guarded

MEMBERS = re.compile(
    r"[^/]+/((data/(weights/weight|constants/tensor)_\d+)|data/\w+/\w+_config\.json|models/\w+\.json"
    r"|data/sample_inputs/\w+\.pt|extra/[\w.]+|serialized_\w+\.(pt|json)|archive_(format|version)"
    r"|byteorder|version|\.data/\w+)"
)
"""Members that are no code by themselves."""
EXPRESSION = re.compile(
    r"((Symbol|Integer|Rational|Add|Mul|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|ModularIndexing|Eq|Ne|Lt"
    r"|Le|Gt|Ge|And|Or|Not)(?=\()|'[su]\d+'|\b[su]\d+\b|\w+=(True|False)\b|\b(true|false|oo|int_oo)\b|\b\d+"
    r"|[-+/(), ]|\*(?!\*))*"
)
"""Arithmetic of symbols and whole numbers, without powers, as sympy writes it."""
TARGET = re.compile(
    r"torch\.ops\.(aten|prims)\.(?!from_file|save)\w+(\.\w+)?|torch\.sym_\w+|math\.(sqrt|ceil|floor|trunc)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|neg|pos|abs|eq|ne|lt|le|gt|ge|getitem|and_|or_|not_)"
)
"""Operators that a node may call; torch takes any function below its own module."""
PLAIN = re.compile(r"[\w.+-]*")
"""Names, which become Python."""
LONGEST = 2**12
"""Letters of a name or an expression."""
TYPES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
"""Containers of inputs and outputs; torch imports the module of others."""
_TEXTS = ("as_string", "as_strings", "metadata", "torch_version")
"""Entries with any text: it is data to torch as well."""


def find_code(path: Path) -> str:
    """Return what in an archive may be run by opening it, in words; empty if nothing is.

    Raises:
        WeightsError: it is damaged.
    """
    with guarded(path, "archive of torch.export"):
        path = lasting(path)
        archive = Archive(path, "archive of torch.export", budget := budget_of(path, [path]))
        for name in archive.names:
            if not MEMBERS.fullmatch(name):
                return f"holds {name!r:.80}"
            if name.endswith(".json"):
                for found in _odd(parse_json(archive.read(name)), ""):
                    return f"has {found} in {name}"
            elif name.endswith(".pt") and (why := _calls(archive, name, budget)):
                return f"has a pickle that calls, {name} ({why})"
    return ""


def _odd(value: Any, key: str) -> Iterator[str]:
    """Yield what of a JSON value is not plain data to torch."""
    if key in _TEXTS:
        return
    if isinstance(value, dict):
        for name, each in value.items():
            if not PLAIN.fullmatch(name):
                yield f"the name {name!r:.80}"
            yield from _odd(each, name)
    elif isinstance(value, list):
        if value and key == "guards_code":
            yield "lines of Python (guards_code)"
        for each in value:
            yield from _odd(each, key)
    elif key == "use_pickle" and value:
        yield "tensors in pickles"
    elif isinstance(value, str):
        if key in ("in_spec", "out_spec"):
            if odd := [each for each in _types(parse_json(value)) if each not in TYPES]:
                yield f"a container of the type {odd[0]!r:.80}"
        else:
            rule = {"expr_str": EXPRESSION, "target": TARGET}.get(key, PLAIN)
            inner = re.sub("__(and|or|xor|lshift|rshift)__", "", value)
            if len(value) > LONGEST or "__" in inner or not rule.fullmatch(value):
                yield f"{key} {value!r:.80}"


def _types(spec: Any) -> Iterator[Any]:
    """Yield the types of the containers in a description of a tree."""
    if isinstance(spec, list):
        for each in spec:
            yield from _types(each)
    elif isinstance(spec, dict):
        yield spec.get("type")
        yield from _types(spec.get("children_spec"))


def _calls(archive: Archive, name: str, budget: Budget) -> str:
    """Return why torch would not take a pickle for plain data; empty if it does."""
    import torch

    part = archive.part(name)
    try:
        inside = Archive(part, "file of torch.save", budget)
        read_pickle(inside, prefix_of(inside) or "")
        torch.load(io.BytesIO(archive.read(name)), weights_only=True)
    except WeightsError as error:
        return first_line(error)
    except Exception as error:
        return first_line(error)[:80]
    return ""
