"""Typed command lines by tyro, whose errors become one line.

tyro reports what it cannot parse as events (`tyro._errors`): of the parts of tyro that may change from
release to release, these are the only ones in use, and only here.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import tyro
from tyro import _errors as events
from tyro.constructors import ConstructorRegistry

from parity.cli.support import flag_rules
from parity.cli.support.advice import offer
from parity.cli.support.kept import WRITTEN, refuse_lost
from vit_config import ConfigError
from vit_config.field_words import flag_for, reason_without


def parse(
    kind: type,
    argv: Sequence[str],
    *,
    prog: str,
    registry: ConstructorRegistry = flag_rules.registry,
    written: tuple[str, ...] = WRITTEN,
    **options: Any,
) -> Any:
    """Read `argv` into the dataclass `kind`.

    Args:
        registry: how fields become flags; `schema_flags.registry` where there are schemas among them.
        written: fields that are reports, see `refuse_lost`.
        options: as `tyro.cli` takes.

    Raises:
        ConfigError: an unknown flag, a value that is not valid, or a report that would replace what is
            read, or a model's or a run's file.
        MissingFileError: the folder to write a report in does not exist.
        SystemExit: after printing help.
    """

    def refuse(event: events.ParseErrorEvent) -> None:
        what, hint = _one_line(event), f"{prog} --help lists every flag"
        if isinstance(event, events.UnrecognizedArgs):
            unknown = [word for word in event.tokens if word.startswith("-")]
            why = reason_without(unknown, flags_of(kind))
            near = flag_for(unknown, flags_of(kind)) or (None if why else _nearest(event.tokens, kind))
            hint = f"did you mean {near}?" if near else why or hint
        for word in argv if isinstance(event, events.MissingArgs) else ():  # under another name?
            if word.startswith("-") and (near := flag_for([word], flags_of(kind))):
                what, hint = f"no option {word}", f"did you mean {near}?"
        raise ConfigError(f"{what}; {hint}")

    offer(flags_of(kind), argv)
    with events.on_parse_error(refuse):
        made = tyro.cli(
            kind,
            args=_gathered(kind, argv),
            prog=prog,
            description=_filled(kind),
            registry=registry,
            **options,
        )
    refuse_lost(made, written)
    return made


def _gathered(kind: type, argv: Sequence[str]) -> list[str]:
    """Join the values of a flag that is given twice and takes any number: tyro takes the last alone."""
    several = {flag for flag, hint in _flags(kind, "--") if "..." in str(hint)}
    groups: list[list[str]] = [[]]
    first: dict[str, list[str]] = {}
    now = groups[0]
    for word in argv:
        if word in first:
            now = first[word]
        elif word.startswith("--"):
            now = [word]
            groups.append(now)
            first |= {word: now} if word in several else {}
        else:
            now.append(word)
    return [word for group in groups for word in group]


def _filled(kind: type) -> str:
    """Return a command's description, indented: tyro joins the lines that begin with a letter."""
    text = inspect.getdoc(kind) or ""
    width, edge = shutil.get_terminal_size().columns, "  "
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n".join(
        textwrap.fill(each, width, initial_indent=edge, subsequent_indent=edge) for each in parts
    )


_NO_TYPE = re.compile(r"no type matching (.+?) could be instantiated from (\[.*?\])\. Got errors: ")
_NO_NUMBER = re.compile(
    r"(?:(invalid literal for int\(\) with base 10)|could not convert string to float): (.*)"
)
_KINDS = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "[FLOAT [FLOAT ...]]": "numbers",
    "PATH": "a path",
    "STR": "a text",
}


def _plainly(message: str) -> str:
    """Return tyro's message about a value, without Python's words and the types that were tried."""
    if match := _NO_TYPE.match(message):
        kinds, words = match.groups()
        bare = [kind.strip("{}") for kind in kinds.split("|")]
        names = [_KINDS.get(kind, kind) for kind in bare]
        return f"expected {' or '.join(sorted(names))}, got {' '.join(ast.literal_eval(words))!r}"
    if match := _NO_NUMBER.match(message):
        whole, got = match.groups()
        return f"expected a {'whole ' if whole else ''}number, got {got}"
    return message.rstrip(".")


def flags_of(kind: type) -> list[str]:
    """Return every flag of a dataclass, such as ``--model.depth``."""
    return [flag for flag, _ in _flags(kind, "--")]


def _nearest(words: Sequence[str], kind: type) -> str | None:
    """Return the flag that was probably meant, or None."""
    flags = flags_of(kind)
    matches = (difflib.get_close_matches(word.partition("=")[0], flags, 1, 0.7) for word in words)
    return next((near[0] for near in matches if near), None)


def _flags(kind: type, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every flag of a dataclass or a schema with its type, an inner one's as ``--model.depth``."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = getattr(kind, "model_fields", None)  # of a schema; a dataclass has them elsewhere
    for name in fields or [field.name for field in dataclasses.fields(kind)]:
        marks = getattr(hints[name], "__metadata__", ())
        flag = prefix + next((own for each in marks if (own := getattr(each, "name", None))), name)
        inside: Any = getattr(hints[name], "__origin__", hints[name])
        if not hasattr(inside, "__dataclass_fields__") and not hasattr(inside, "model_fields"):
            yield flag.replace("_", "-"), inside
        else:  # every mark here omits the prefix
            yield from _flags(inside, prefix if marks else f"{flag}.")


def _one_line(event: events.ParseErrorEvent) -> str:
    if isinstance(event, events.UnrecognizedArgs):
        flags = [word for word in event.tokens if word.startswith("-")]
        return f"no option {flags[0]}" if flags else f"unexpected {' '.join(event.tokens)}"
    if isinstance(event, events.InvalidChoice):
        choices = ", ".join(sorted({*event.choices} - {"None"}))  # of a set, in any order
        name = event.argument.display_name()
        return f"{name}: invalid choice {event.value!r}, expected one of {choices}"
    if isinstance(event, events.BadValue):
        return f"{event.argument.display_name()}: a value is missing"
    if isinstance(event, events.InstantiationFailure):
        name = f"{event.argument.display_name()}: " if event.argument else ""
        return name + _plainly(" ".join(event.message.split()))
    if isinstance(event, events.MissingArgs):
        missing = (each.arg for each in event.missing_arguments)
        names = [
            str(arg.lowered.metavar if arg.is_positional() else arg.display_name()) for arg in missing
        ]
        return f"{' and '.join(names)} must be given"
    return "the command line cannot be understood"
