"""The one door through which text goes to the terminal: what is in it acts on nothing.

Names of tensors, classes, files and licences come from strangers, and a terminal obeys ESC, BEL, CR and
marks that turn the direction of writing. Rich's tables pass `vit_config.screen` instead.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import warnings
from typing import Any, TextIO

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")

_MOMENT = 0.05
"""Seconds in which the garbage collector is done."""


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


def let_interrupts_through() -> None:
    """Ctrl-C counts wherever it arrives: within what the garbage collector calls Python can only print
    the exception, so it is raised again a moment later."""
    usual = sys.unraisablehook

    def again(found: Any) -> None:
        if not isinstance(found.exc_value, KeyboardInterrupt):
            usual(found)
            return
        later = threading.Timer(_MOMENT, _interrupt)
        later.daemon = True
        later.start()

    sys.unraisablehook = again


def _interrupt() -> None:
    """Send the main thread Ctrl-C, which ends a call of the system that it waits in."""
    if main := threading.main_thread().ident:
        signal.pthread_kill(main, signal.SIGINT)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
