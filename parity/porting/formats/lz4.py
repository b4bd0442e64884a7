"""Archives of files packed by tar and LZ4 (``.tar.lz4``), unpacked in memory without a library."""

from __future__ import annotations

from pathlib import Path

from parity.porting.formats.budget import Budget
from vit_config.errors import WeightsError

MAGIC = b"\x04\x22\x4d\x18"
_LARGEST = 2**22
"""Most bytes of a block."""
_RECORD = 512
"""Bytes of a tar archive's header; a member's bytes are filled up to a multiple of it."""


def read_archive(path: Path, budget: Budget) -> dict[str, bytes]:
    """Return the files of an archive by name.

    Raises:
        WeightsError: it is damaged, or unpacks to too much for the budget.
    """
    content, at, found = _unpacked(path.read_bytes(), budget), 0, dict[str, bytes]()
    while any(head := content[at : at + _RECORD]):
        name, size = head[:100].split(b"\0")[0].decode(), int(head[124:136].strip(b" \0"), 8)
        at += _RECORD
        if not 0 <= size <= len(content) - at:
            raise WeightsError(f"{name:.80} in it ends behind its end; copy it again")
        if head[156:157] in (b"0", b"\0"):  # a file; others are its times, or what Equimo never packs
            budget.objects(_RECORD)
            found[name] = bytes(memoryview(content)[at : at + size])
        at += -(-size // _RECORD) * _RECORD
    return found


def _unpacked(packed: bytes, budget: Budget) -> bytearray:
    """Unpack a frame, the one of a file; its checksums are not compared."""
    flags, out = packed[4], bytearray()
    if flags >> 6 != 1 or flags & 1:
        raise WeightsError("is packed by another version of LZ4, or with a dictionary")
    at = 7 + 8 * (flags >> 3 & 1)
    while size := int.from_bytes(_taken(packed, at, 4), "little"):
        at, plain, size = at + 4, size >> 31, size & 0x7FFFFFFF
        block = _taken(packed, at, size)
        if plain:
            out += block
        else:
            _unpack(block, out)
        budget.unpacked(len(out))
        at += size + 4 * (flags >> 4 & 1)
    return out


def _taken(data: bytes, at: int, count: int) -> bytes:
    found = data[at : at + count]
    if len(found) < count:
        raise WeightsError(f"ends before byte {at + count}; copy it again")
    return found


def _unpack(block: bytes, out: bytearray) -> None:
    """Append what a block stands for: runs of its own bytes, and of bytes that went before."""
    at, most = 0, len(out) + _LARGEST
    while True:
        token, at = block[at], at + 1
        count, at = _length(block, at, token >> 4)
        out += _taken(block, at, count)
        if (at := at + count) == len(block):
            return
        back, at = int.from_bytes(_taken(block, at, 2), "little"), at + 2
        count, at = _length(block, at, token & 15)
        count += 4
        if not 0 < back <= len(out) or len(out) + count > most:
            raise WeightsError("repeats bytes that are not there; copy it again")
        run = out[len(out) - back : len(out) - back + count]
        out += (run * -(-count // back))[:count] if back < count else run


def _length(block: bytes, at: int, count: int) -> tuple[int, int]:
    if count == 15:
        while (more := block[at]) == 255:
            count, at = count + 255, at + 1
        count, at = count + more, at + 1
    return count, at
