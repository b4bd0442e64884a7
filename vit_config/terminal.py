"""The one way for text to the terminal: no character in it acts on the terminal.

Names of tensors, classes, files and licences come from strangers, and a terminal obeys ESC, BEL, CR
and marks that turn the direction of writing. Rich's tables go through `vit_config.screen` instead.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")

_MOMENT = 0.05
"""Seconds within which the garbage collector has finished."""


def harmless(text: str) -> str:
    r"""Spell out, as ``\x1b``, every character of a text that acts on a terminal; its line ends stay."""
    return _ACTS.sub(_spelled, text)


def say(*lines: object, file: TextIO | None = None, flush: bool = False) -> None:
    """Print each text as exactly one line of standard output, or of another stream."""
    for line in lines:
        text = _BREAKS.sub(" ", harmless(str(line)))
        print(f"{text}\n", end="", file=file, flush=flush)  # in one piece, whichever thread


def complain(*lines: object) -> None:
    """Print each text as exactly one line of standard error."""
    say(*lines, file=sys.stderr)


@contextmanager
def any_letters() -> Iterator[None]:
    r"""Let standard output spell out, as ``\xe9``, the letters that its encoding lacks, as standard
    error does: a name in a file may have any."""
    out: Any = sys.stdout
    if getattr(out, "errors", None) != "strict" or not hasattr(out, "reconfigure"):
        yield
        return
    out.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        out.reconfigure(errors="strict")


def keep_pil_silent() -> None:
    """Silence PIL's warnings of oddities in an image: the caller reports the images that it refuses."""
    warnings.filterwarnings("ignore", module=r"PIL(\.|$)")


def let_interrupts_through() -> None:
    """Raise Ctrl-C again a moment later if it arrives within a call of the garbage collector, where
    Python can only print the exception."""
    usual = sys.unraisablehook

    def again(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            usual(unraisable)
            return
        later = threading.Timer(_MOMENT, _interrupt)
        later.daemon = True
        later.start()

    sys.unraisablehook = again


def _interrupt() -> None:
    """Send the main thread Ctrl-C, which ends a call of the system that it waits in."""
    if main := threading.main_thread().ident:
        signal.pthread_kill(main, signal.SIGINT)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
