"""Errors that a user can make, and one that only this package can, as exceptions.

Each message is one line that says what is wrong, where, both values, and what to do. A command
prints that line and exits with status 2; a program catches ``ValueError`` or ``FileNotFoundError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vit_config.terminal import harmless

_LONGEST_MESSAGE = 4000


class ConfigError(ValueError):
    """A schema, recipe or command line that contradicts itself or has an unknown field."""


class UnstatedError(ConfigError):
    """A fact that a file leaves open and that must not be guessed: the user has to state it."""

    def __init__(self, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields
        """The schema's fields that would state the fact; none if something else would."""
        self.unheld: tuple[str, ...] = ()
        """A trained classifier in the same file that no schema holds, by its tensors' names."""


class InputError(ValueError):
    """Images, labels or call arguments that do not fit the model."""


class WeightsError(ValueError):
    """Weights that are damaged, of the wrong kind of file, or do not fit the model."""


class OtherModelError(WeightsError):
    """Undamaged weights of a model that is not a Vision Transformer or is not converted."""


class DataError(ValueError):
    """A data set that cannot be read or does not fit the model."""


class CheckpointError(ValueError):
    """A training run that cannot be resumed as asked."""


class TrainingError(ValueError):
    """A training run that cannot go on."""


class MissingFileError(FileNotFoundError):
    """A file or folder that was named but is not there."""

    def __str__(self) -> str:
        return str(self.args[0])


REPORT = (
    "This is a fault of parity, not of the program: please report it with this line and, if you may, the"
    " program"
)


class OwnFaultError(RuntimeError):
    """A fault of this package that it found by itself; the message asks to report it."""


USER_ERRORS = (
    ConfigError,
    InputError,
    WeightsError,
    DataError,
    CheckpointError,
    TrainingError,
    MissingFileError,
    OwnFaultError,
)
"""All errors above, which a command prints as one line."""


def about(path: str | Path, message: object, *, part: str = "") -> str:
    """Write a message as one line that begins with its path, unless the message names it already.

    Args:
        part: text behind the path, such as ``, step 3``.
    """
    line = one_line(str(message))
    where = one_line(str(path))
    return line if where in line else f"{where}{part}: {line}"


def first_line(source: BaseException | str | None) -> str:
    """Return the first line of a library's message, the kind of the error if it has none; or the first
    line of a text such as a docstring, empty where there is none."""
    if isinstance(source, BaseException):
        source = str(source).strip() or type(source).__name__
    lines = (source or "").strip().splitlines()
    return lines[0] if lines else ""


def one_line(message: str) -> str:
    """Write a message on one line of bounded length, without characters that act on a terminal."""
    line = harmless(" ".join(message.splitlines()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} ..."


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Prefix the message of a user's error raised inside with the file's path, see `about`."""
    try:
        yield
    except USER_ERRORS as error:
        error.args = (about(path, error),)
        raise
