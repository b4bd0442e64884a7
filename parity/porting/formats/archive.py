"""Zip archives whose members can be read in part, by offset, and are checked by their CRC."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from parity.porting.formats.budget import Budget
from parity.porting.formats.comment import unpack
from parity.porting.formats.part import FilePart
from vit_config.errors import WeightsError
from vit_config.files.stored import guarded

_CHUNK = 2**20
_UTF8 = 0x800
_LONGEST_END = 22 + 2**16
_SHORTEST_ENTRY = 46
_MEMBER = 640
"""Bytes of memory that `zipfile` takes for a member."""
_HIGHEST_RATIO = 1032
"""Most bytes that one deflated byte can stand for."""


class _Contents(io.BufferedReader):
    """A zip archive whose table of contents is counted before it is read."""

    def __init__(self, path: Path | FilePart, budget: Budget):
        super().__init__(path.open("rb").detach())
        self._budget = budget

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes, each 46 of which may be a member."""
        self._budget.objects(max(size or 0, 0) // _SHORTEST_ENTRY * _MEMBER)
        return super().read(size)


class Archive:
    """A zip archive; its table of contents is read and checked at once, its members later.

    Args:
        kind: name of the file's kind for messages.
        budget: budget of the file.

    Raises:
        WeightsError: the archive is truncated, has a name twice, an encrypted member or one outside of
            the file, or its members are too many, or unpack to too much, for the budget.
    """

    def __init__(self, path: Path | FilePart, kind: str, budget: Budget):
        self.path = path
        self.kind = kind
        self._verified: set[str] = set()
        size = path.stat().st_size
        self.budget = budget
        try:
            with _Contents(path, budget) as file, zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                self.metadata = unpack(archive.comment)
        except zipfile.BadZipFile as error:
            raise WeightsError(
                f"{path}: damaged or truncated {kind} of {size} bytes ({error}: the table of"
                " contents at its end is not whole); copy it again"
            ) from None
        self._members = {member.filename: member for member in members}
        if len(members) != _announced_members(path, size):
            raise WeightsError(
                f"{path}: damaged, members of the archive are missing; copy the file again"
            )
        if len(self._members) != len(members):
            raise WeightsError(f"{path}: two members of the archive have the same name")
        for member in members:
            self._check(member, size)
        self.budget.unpacked(
            sum(each.file_size for each in members if each.compress_type == zipfile.ZIP_DEFLATED)
        )

    @property
    def names(self) -> list[str]:
        """Names of the members."""
        return list(self._members)

    def size(self, name: str) -> int:
        """Return the size of a member in bytes. WeightsError: there is no such member."""
        return self._member(name).file_size

    def read(self, name: str) -> bytes:
        """Read a whole member and check its CRC."""
        return self.range(name, 0, self.size(name)).tobytes()

    def part(self, name: str) -> FilePart:
        """Return a member that is stored as it is as a part of the file, after a check of its CRC."""
        member = self._member(name)
        if member.compress_type != zipfile.ZIP_STORED or not isinstance(self.path, Path):
            raise WeightsError(f"{name} is compressed; unpack the archive first")
        self.range(name, 0, 0)
        with self.path.open("rb") as file:
            return FilePart(self.path, self._start(file, member), member.file_size)

    def head(self, name: str, count: int) -> bytes:
        """Read at most `count` bytes from the start of a member, without checking its CRC."""
        content = b""
        with guarded(self.path, self.kind), self.path.open("rb") as file:
            for chunk in self._chunks(file, self._member(name), min(count, _CHUNK)):
                content += chunk
                if len(content) >= count:
                    break
        return content[:count]

    def range(self, name: str, begin: int, end: int) -> np.ndarray:
        """Read bytes `begin` to `end` of a member into a new uint8 array.

        The first read of a member reads all of it and checks its CRC.

        Raises:
            WeightsError: the member is damaged; the message names it.
        """
        member = self._member(name)
        with guarded(self.path, self.kind), self.path.open("rb") as file:
            if not 0 <= begin <= end <= member.file_size:
                raise ValueError(f"bytes {begin} to {end} of {name}, which has {member.file_size}")
            content = np.empty(end - begin, np.uint8)
            if name in self._verified and member.compress_type == zipfile.ZIP_STORED:
                file.seek(self._start(file, member) + begin)
                if file.readinto(content.data) != content.size:
                    raise self._damaged(name, "it ends too early")
                return content
            self._read_checked(file, member, begin, end, content)
        self._verified.add(name)
        return content

    def _read_checked(
        self, file: BinaryIO, member: zipfile.ZipInfo, begin: int, end: int, content: np.ndarray
    ) -> None:
        position, crc = 0, 0
        for chunk in self._chunks(file, member, _CHUNK):
            crc = zlib.crc32(chunk, crc)
            first, last = max(begin, position), min(end, position + len(chunk))
            if first < last:
                piece = np.frombuffer(chunk, np.uint8)[first - position : last - position]
                content[first - begin : last - begin] = piece
            position += len(chunk)
        if position != member.file_size:
            raise self._damaged(member.filename, f"{position} bytes of {member.file_size}")
        # torch.save has an option not to compute the CRC, and writes 0 then
        if crc != member.CRC != 0:
            raise self._damaged(member.filename, f"CRC {crc:08x}, expected {member.CRC:08x}")

    def _chunks(self, file: BinaryIO, member: zipfile.ZipInfo, step: int) -> Iterator[bytes]:
        """Yield the unpacked contents of a member in pieces."""
        file.seek(self._start(file, member))
        left = member.compress_size
        inflate = zlib.decompressobj(-15) if member.compress_type == zipfile.ZIP_DEFLATED else None
        count = 0
        while left and (chunk := file.read(min(left, step))):
            left -= len(chunk)
            while inflate and chunk:
                piece = inflate.decompress(chunk, step)
                count += len(piece)
                if count > member.file_size:
                    raise self._damaged(member.filename, f"more than {member.file_size} bytes")
                yield piece
                chunk = inflate.unconsumed_tail
            if not inflate:
                yield chunk
        if inflate and (rest := inflate.flush()):
            yield rest

    def _start(self, file: BinaryIO, member: zipfile.ZipInfo) -> int:
        """Return the offset of a member's bytes: after its local header, whose length only it states."""
        file.seek(member.header_offset)
        header = file.read(30)
        if header[:4] != b"PK\x03\x04" or len(header) != 30:
            raise self._damaged(member.filename, "its header is not there")
        lengths = [int.from_bytes(header[at : at + 2], "little") for at in (26, 28)]
        encoding = "utf-8" if member.flag_bits & _UTF8 else "cp437"
        if file.read(lengths[0]) != member.orig_filename.encode(encoding):
            raise self._damaged(member.filename, "its header has another name")
        start = member.header_offset + 30 + sum(lengths)
        if start + member.compress_size > self.path.stat().st_size:
            raise self._damaged(member.filename, "it ends past the end of the file")
        return start

    def _member(self, name: str) -> zipfile.ZipInfo:
        if name not in self._members:
            raise WeightsError(f"{self.path}: no {name} in the archive; the {self.kind} is damaged")
        return self._members[name]

    def _check(self, member: zipfile.ZipInfo, size: int) -> None:
        packed, name = member.compress_size, member.filename
        if member.flag_bits & 1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise WeightsError(f"{self.path}: {name} is encrypted or compressed in an unknown way")
        if member.header_offset < 0 or member.header_offset + packed > size:
            raise self._damaged(name, f"it ends past the end of the file, byte {size}")
        stored = member.compress_type == zipfile.ZIP_STORED
        if (stored and member.file_size != packed) or member.file_size > packed * _HIGHEST_RATIO:
            raise self._damaged(name, f"{packed} bytes in the file cannot hold {member.file_size}")

    def _damaged(self, name: str, how: str) -> WeightsError:
        return WeightsError(f"{self.path}: damaged, {name} in the archive: {how}; copy the file again")


def _announced_members(path: Path | FilePart, size: int) -> int:
    """Return the number of members in an archive's end record, which `zipfile` does not check."""
    with path.open("rb") as file:
        file.seek(max(0, size - _LONGEST_END))
        end = file.read()
    place = end.rfind(b"PK\x05\x06")
    count = int.from_bytes(end[place + 10 : place + 12], "little")
    if count == 0xFFFF:  # too many for two bytes: the zip64 record before it has eight
        place = end.rfind(b"PK\x06\x06")
        count = int.from_bytes(end[place + 32 : place + 40], "little")
    return count
