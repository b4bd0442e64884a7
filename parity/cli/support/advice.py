"""Advice that can be followed: a sentence names only flags that the command at hand has.

Many commands read checkpoints through packages that know no commands: their messages say in flags of
`parity convert` what a file leaves open. Where the command at hand has no such flag, the sentence names
the whole command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

_ELSEWHERE = re.compile(r"(`[^`]*`|\bparity [a-z][a-z-]*(?: --[a-z][\w-]*)+)")
"""Text that already names the command of its flags."""
_FLAG = (
    r"(?<![\w-])--[a-z][\w-]*(?:\.\w[\w-]*)*(?:(?: \w+=[^\s,;:)]+)+| [A-Z]{2,}\b| \d+\b"
    r"|(?:(?<=--part)|(?<=--like)|(?<=--dialect)) [^\s,;:)]+)?"
)
"""A flag with its value, if any: fields with values, a word in capitals, a number or a name."""
_FLAGS = re.compile(rf"{_FLAG}(?: {_FLAG})*")
"""Flags that stand side by side, which are given together."""
_NAME = re.compile(r"(?<![\w-])--[a-z][\w.-]*")

_IN_CONFIG = ("--model.", "--recipe.")
"""Beginnings of flags for what a file of --config can say, too."""


class _AtHand(NamedTuple):
    """The running command."""

    offered: set[str]
    """Its flags."""
    typed: set[str]
    """The words that were typed."""
    of_convert: Callable[[], Collection[str]]
    """Returns the flags of `parity convert`, which imports it."""


_at_hand: ContextVar[_AtHand | None] = ContextVar("at_hand", default=None)


@contextmanager
def command_at_hand(of_convert: Callable[[], Collection[str]]) -> Iterator[None]:
    """Begin a command, whose flags are not known yet.

    Args:
        of_convert: returns the flags of `parity convert`.
    """
    token = _at_hand.set(_AtHand(set(), set(), of_convert))
    try:
        yield
    finally:
        _at_hand.reset(token)


def offer(flags: Collection[str], argv: Sequence[str]) -> None:
    """Record which flags the command has, and what was typed."""
    if known := _at_hand.get():
        known.offered.update(flags)
        known.typed.update(word.partition("=")[0] for word in argv)


def withdraw(flag: str) -> None:
    """Record that a flag of the command does not go with what it reads."""
    if known := _at_hand.get():
        known.offered.discard(flag)


def here(text: str) -> str:
    """Return a sentence in which a flag that the command lacks is shown with the command that has it."""
    at_hand = _at_hand.get()
    if at_hand is None or not at_hand.offered:
        return text
    offered, typed, of_convert = at_hand
    there: list[str] = []

    def named(match: re.Match[str]) -> str:
        flags = _NAME.findall(match[0])
        lost = [flag for flag in flags if flag not in typed and not _is_among(flag, offered)]
        there.extend(lost)
        told = lost and all(_is_among(flag, of_convert()) for flag in flags)
        return f"`parity convert {match[0]}`" if told else match[0]

    parts = _ELSEWHERE.split(text)
    sentence = "".join(part if odd % 2 else _FLAGS.sub(named, part) for odd, part in enumerate(parts))
    if not there:
        return text
    missing = [flag for flag in dict.fromkeys(there) if not _is_among(flag, of_convert())]
    if missing and "--config" in offered and all(flag.startswith(_IN_CONFIG) for flag in missing):
        return f"{sentence}; here such fields are those of --config FILE"
    if missing:
        return f"{sentence}; this command has no {', '.join(missing)}"
    return f"{sentence}; what it writes says so itself, and is read here"


def _is_among(flag: str, flags: Collection[str]) -> bool:
    plain = flag.replace("--no-", "--", 1)
    return flag in ("--help", *flags) or plain in flags or _stands_for_several(flag, flags)


def _stands_for_several(flag: str, flags: Collection[str]) -> bool:
    """Return whether a flag such as ``--model.FIELD`` stands for several flags."""
    head, dot, rest = flag.partition(".")
    return bool(dot) and rest.isupper() and any(each.startswith(f"{head}.") for each in flags)
