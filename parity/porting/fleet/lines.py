"""Formats exceptions and file names of any kind as one line of text."""

from __future__ import annotations

from pathlib import Path

from vit_config.errors import USER_ERRORS


def line_about(path: Path, error: BaseException) -> str:
    """Return an exception's message as one line, to show beside the checkpoint's path: without it."""
    folder = path if path.is_dir() else path.parent
    return line_of(error).removeprefix(f"{path}: ").replace(f"{folder}/", "")


def line_of(error: BaseException) -> str:
    """Return an exception's message as one line."""
    if isinstance(error, USER_ERRORS):
        return printable(str(error))
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"needs the package {error.name}; pip install 'vit-parity[all,peers]'"
    return printable(f"{type(error).__name__}: {error} (internal error, not a problem with the file)")


def printable(text: str) -> str:
    """Escape line ends, control characters and everything that is not UTF-8."""
    text = text.encode(errors="backslashreplace").decode()
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
