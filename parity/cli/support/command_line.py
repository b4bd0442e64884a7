"""Typed command lines by tyro, whose errors become one line.

tyro reports what it cannot parse as events (`tyro._errors`): of the parts of tyro that may change from
release to release, these are the only ones in use, and only here.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import tyro
from tyro import _errors as events
from tyro.extras import get_parser

from vit_config import ConfigError


def parse(kind: type, argv: Sequence[str], *, prog: str, **options: Any) -> Any:
    """Read `argv` into the dataclass `kind`; options as `tyro.cli` takes.

    Raises:
        ConfigError: an unknown flag, or a value that is not valid.
        SystemExit: after printing help.
    """

    def refuse(event: events.ParseErrorEvent) -> None:
        what, hint = _one_line(event), f"{prog} --help lists every flag"
        if isinstance(event, events.UnrecognizedArgs) and (near := _nearest(event.tokens)):
            hint = f"did you mean {near}?"
        raise ConfigError(f"{what}; {hint}")

    def _nearest(words: Sequence[str]) -> str | None:
        taken = {name: value for name, value in options.items() if name in ("default", "registry")}
        flags = get_parser(kind, prog=prog, **taken)._option_string_actions
        found = (difflib.get_close_matches(word.partition("=")[0], flags, 1, 0.7) for word in words)
        return next((near[0] for near in found if near), None)

    with events.on_parse_error(refuse):
        return tyro.cli(kind, args=list(argv), prog=prog, **options)


def _one_line(event: events.ParseErrorEvent) -> str:
    if isinstance(event, events.UnrecognizedArgs):
        flags = [word for word in event.tokens if word.startswith("-")]
        return f"no option {flags[0]}" if flags else f"unexpected {' '.join(event.tokens)}"
    if isinstance(event, events.InvalidChoice):
        choices = ", ".join(event.choices)
        name = event.argument.display_name()
        return f"{name}: invalid choice {event.value!r}, expected one of {choices}"
    if isinstance(event, events.BadValue):
        return f"{event.argument.display_name()}: a value is missing"
    if isinstance(event, events.InstantiationFailure):
        name = f"{event.argument.display_name()}: " if event.argument else ""
        return name + " ".join(event.message.split()).rstrip(".")
    if isinstance(event, events.MissingArgs):
        missing = (each.arg for each in event.missing_arguments)
        names = [
            str(arg.lowered.metavar if arg.is_positional() else arg.display_name()) for arg in missing
        ]
        return f"{' and '.join(names)} must be given"
    return "the command line cannot be understood"
