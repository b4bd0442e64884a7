"""Archives of files packed by tar and LZ4 (``.tar.lz4``), unpacked in memory."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import BinaryIO

from parity.porting.formats.budget import Budget
from vit_config.errors import WeightsError

MAGIC = b"\x04\x22\x4d\x18"
_PIECE = 2**22
"""Most bytes that are unpacked at once."""
_RECORD = 512
"""Bytes of a tar archive's header."""


def read_archive(path: Path, budget: Budget) -> dict[str, bytes]:
    """Return the files of an archive by name.

    Raises:
        WeightsError: it is damaged, or unpacks to too much for the budget.
        ModuleNotFoundError: the package lz4 is not installed.
    """
    with path.open("rb") as packed:
        unpacked = io.BytesIO(_unpacked(packed, budget))
    files = {}
    try:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            for member in archive:
                budget.objects(_RECORD)
                if member.isreg() and not member.issparse() and (file := archive.extractfile(member)):
                    files[member.name] = file.read()
    except tarfile.TarError as error:
        raise WeightsError(f"holds no whole tar archive ({error}); copy it again") from None
    return files


def _unpacked(packed: BinaryIO, budget: Budget) -> bytearray:
    from lz4.frame import LZ4FrameDecompressor

    unpacker, out = LZ4FrameDecompressor(), bytearray()
    try:
        while not unpacker.eof:
            more = packed.read(_PIECE) if unpacker.needs_input else b""
            if unpacker.needs_input and not more:
                raise WeightsError("ends in the middle; copy it again")
            piece = unpacker.decompress(more, max_length=_PIECE)
            out += piece
            budget.unpacked(len(out))
    except RuntimeError as error:
        raise WeightsError(f"is no whole LZ4 frame ({error}); copy it again") from None
    return out
