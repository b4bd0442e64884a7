"""The one way for text to the terminal: no character in it acts on the terminal.

Names of tensors, classes, files and licences come from strangers, and a terminal obeys ESC, BEL, CR
and marks that turn the direction of writing. Rich's tables go through `vit_config.screen` instead.
"""

from __future__ import annotations

import logging
import os
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


LIBRARIES = ("PIL", "numpy", "tifffile", "onnx", "torch.export", "pyarrow", "orbax")
"""Libraries that are given files of strangers: what they say of one is said by the refusal."""
_NOWHERE = logging.NullHandler()


def keep_libraries_silent() -> None:
    """Silence what libraries log, or warn of, about a file: the caller reports what it refuses."""
    for name in LIBRARIES:
        warnings.filterwarnings("ignore", module=rf"{re.escape(name)}(\.|$)")
        logging.getLogger(name).addHandler(_NOWHERE)  # else Python prints what has no other handler
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _but_for_late_answers


def _but_for_late_answers(kind: Any, error: Any, trace: Any) -> None:
    """Print an exception, unless it is late."""
    if not _is_late(error):
        sys.__excepthook__(kind, error, trace)


def _is_late(error: Any) -> bool:
    """Return whether it is of TensorStore's threads, which answer when nobody waits any more."""
    return "Event loop is closed" in str(error)


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Keep Python's warnings and these loggers from being shown; "" is the root of all."""
    levels = {each: logging.getLogger(each).level for each in loggers}
    try:
        for each in loggers:
            logging.getLogger(each).setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in levels.items():
            logging.getLogger(each).setLevel(level)


@contextmanager
def muted() -> Iterator[None]:
    """Keep this process from writing to standard error, as a library in another language does when it
    gives up. Other threads are muted, too: for a moment only."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def let_interrupts_through() -> None:
    """Raise Ctrl-C again a moment later if it arrives within a call of the garbage collector, where
    Python can only print the exception; do not print one that is late."""
    usual = sys.unraisablehook

    def again(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            if not _is_late(unraisable.exc_value):
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
