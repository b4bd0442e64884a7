"""Reopens a written file or folder, as any reader would, before it gets its final name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.measure.shown import first_three
from parity.porting.dialects.dialect import NEUTRAL, agree
from parity.porting.opening.opened import Opened, open_checkpoint
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.reading.libraries.installed import NoModelError, library_of, misfits
from parity.porting.writing.conversion_plan import Target
from vit_config import WeightsError
from vit_config.errors import USER_ERRORS, UnstatedError
from vit_config.files.lasting import check_lasting


def reopen(written: Path, target: Target, out: Path) -> None:
    """Refuse a written file or folder that does not read back as the target; no tensor is read.

    A folder with config files is also read without this project's header, as its own library reads it.

    Args:
        written: the temporary path.
        out: the final path, for messages.

    Raises:
        WeightsError: with both values of the first field that differs, or the reason it cannot be read;
            or the source changed while it was read.
    """
    check_lasting(target.source.container.files)
    try:
        for opened in _readings(written, target):
            checkpoint = _read(opened, target)
            compare(checkpoint, target)
            if target.text is not None:
                target.text.compare(checkpoint)
    except USER_ERRORS as error:
        reason = str(error).removeprefix(f"{written}: ").replace(str(written), str(out))
        reason = reason.partition("; to go with")[0]  # advice about flags, none of which is at fault
        raise WeightsError(f"{out}: not written, since it could not be read again: {reason}") from None


def open_by_library(written: Path, target: Target, out: Path) -> None:
    """Refuse a written folder of which the installed library that it is for makes another model.

    The library builds the model that the config files describe, without memory for its tensors; names
    and shapes are compared. Where none is installed that reads such folders, nothing is done.

    Args:
        written: the temporary path.
        out: the final path, for messages.

    Raises:
        WeightsError: with the names that differ, or the library's own message.
    """
    checkpoint = read_checkpoint(written)
    try:
        library = library_of(checkpoint)
    except NoModelError:
        return
    try:
        problems = misfits(checkpoint, beside=target.text.tensors if target.text else ())
    except (NoModelError, ImportError):
        return
    except Exception as error:  # libraries raise errors of any kind
        problems = [" ".join(f"{type(error).__name__}: {error}".replace(str(written), str(out)).split())]
    if problems:
        raise WeightsError(
            f"{out}: not written, since {library.name} does not open it: {first_three(problems)};"
            " --no-open writes it all the same"
        )


def _readings(written: Path, target: Target) -> Iterator[Opened]:
    opened = open_checkpoint(written)
    if written.is_file():  # config files beside a single file may be another model's
        opened = replace(opened, container=replace(opened.container, sidecars={}))
    yield opened
    if opened.header.entries and opened.sidecars.are_of(target.dialect):
        yield replace(opened, container=replace(opened.container, metadata={}))


def _read(opened: Opened, target: Target) -> Checkpoint:
    """Read the checkpoint, stating fields that header and config files leave open, as a user would."""
    dialect = None if opened.header.entries else target.dialect.name
    given: dict[str, Any] = {}
    while True:
        try:
            return read_checkpoint(opened, dialect=dialect, given=given)
        except UnstatedError as error:
            if not {*error.fields} - {*given}:
                raise
            given |= {name: getattr(target.state.config, name) for name in error.fields}


def compare(checkpoint: Checkpoint, target: Target) -> None:
    """Refuse a checkpoint whose schema, tensor shapes or types differ from the target's.

    Raises:
        WeightsError: with both values.
    """
    expected = target.state.config
    for name in expected.fields():
        read, wrote = getattr(checkpoint.config, name), getattr(expected, name)
        # the size of a model of any size may be what the library's code makes of images
        by_code = name == "image_size" and expected.dynamic_image_size
        by_code = by_code and checkpoint.origins[name].startswith("code of")
        if name not in NEUTRAL and not by_code and not agree(name, read, wrote):
            raise WeightsError(f"{name} = {read} ({checkpoint.origins[name]}), but {wrote} was written")
    for name, stored in target.state.arrays.items():
        read = checkpoint.arrays[name]
        if (read.shape, read.dtype) != (stored.shape, stored.dtype):
            raise WeightsError(
                f"{name} has shape {read.shape} of {read.dtype}, but {stored.shape} of {stored.dtype}"
                " was written"
            )
