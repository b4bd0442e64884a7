"""The one door through which text goes to the terminal: what is in it acts on nothing.

Names of tensors, classes, files and licences come from strangers, and a terminal obeys ESC, BEL, CR and
marks that turn the direction of writing. Rich's tables pass `vit_config.screen` instead.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import TextIO

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")


def harmless(text: str) -> str:
    r"""A text with what acts on a terminal spelled out, as ``\x1b``; its line ends stay."""
    return _ACTS.sub(_spelled, text)


def say(*lines: object, file: TextIO | None = None, flush: bool = False) -> None:
    """Print each text as exactly one line of standard output, or of another stream."""
    for line in lines:
        text = _BREAKS.sub(" ", harmless(str(line)))
        print(f"{text}\n", end="", file=file, flush=flush)  # in one piece, whichever thread


def complain(*lines: object) -> None:
    """Print each text as exactly one line of standard error."""
    say(*lines, file=sys.stderr)


def keep_pil_silent() -> None:
    """PIL warns of what it finds odd in an image: a program that says itself what it refuses has no use
    for that."""
    warnings.filterwarnings("ignore", module=r"PIL(\.|$)")


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
