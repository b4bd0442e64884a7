"""CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord files, at the speed of numpy.

A CRC that begins with zero is linear: the CRC of two strings together is the first's, moved on by as
many zero bytes as the second has, XOR the second's. So 32-byte pieces are computed side by side, and
joined pairwise.
"""

from __future__ import annotations

from functools import cache

import numpy as np

POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, its bits reversed
PIECE = 32
"""Bytes of one piece."""
ALL = 0xFFFFFFFF


def _table(bits: int) -> np.ndarray:
    table = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        table = np.where(table & 1, table >> 1 ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


TABLE, PAIRS = _table(8), _table(16)
"""(256,), (65536,): the next register for each value of its low byte, or low two bytes."""
_ROWS = TABLE.tolist()


def crc32c(data: bytes | memoryview) -> int:
    """Compute the checksum of some bytes."""
    if len(data) < 4 * PIECE:
        register = ALL
        for byte in data:
            register = _ROWS[(register ^ byte) & 255] ^ register >> 8
        return register ^ ALL
    count = 1 << (-(-len(data) // PIECE) - 1).bit_length()  # pieces, a power of two
    padded = np.zeros(count * PIECE, np.uint8)  # zeros in front change nothing
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    padded[len(padded) - len(data) :][:4] ^= 255  # as a register that begins with all ones
    columns = np.ascontiguousarray(padded.view("<u2").reshape(count, PIECE // 2).T)
    registers = np.zeros(count, np.uint32)
    for column in columns:
        registers = PAIRS.take((registers & 65535) ^ column, mode="clip") ^ registers >> 16
    level = 0
    while len(registers) > 1:
        registers = _moved(registers[0::2], _move_tables(level)) ^ registers[1::2]
        level += 1
    return int(registers[0]) ^ ALL


def masked(crc: int) -> int:
    """Mask a checksum as TFRecord files store it: bytes that hold checksums are then guarded as well."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & ALL


def _moved(registers: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Move registers on by the number of zero bytes that the tables (4, 256) stand for."""
    parts = [tables[k][registers >> 8 * k & 255] for k in range(4)]
    return parts[0] ^ parts[1] ^ parts[2] ^ parts[3]


@cache
def _move_tables(level: int) -> np.ndarray:
    """Return (4, 256): each byte of a register moved on by `PIECE` times 2^level zero bytes."""
    values = np.arange(256, dtype=np.uint32)
    registers = np.stack([values << np.uint32(8 * k) for k in range(4)])
    if level:
        half = _move_tables(level - 1)
        return _moved(_moved(registers, half), half)
    for _ in range(PIECE):
        registers = TABLE[registers & 255] ^ registers >> 8
    return registers
