"""A file's metadata in the comment of a zip archive, where no reader of .pth or .npz looks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from vit_config.errors import ConfigError, WeightsError
from vit_config.files.foreign import parse_json

_MARK = b"vit\0"
_PACKED = b"\x78\xda"  # how zlib's best compression begins
_SHIFT = 8
"""Bytes by which damage may have moved the packed texts."""
_LONGEST = 2**16 - 1
_LARGEST = 2**24


def pack(metadata: Mapping[str, str]) -> bytes:
    """Pack texts by key into a comment.

    Raises:
        ConfigError: they do not fit into a comment, which has at most 65,535 bytes.
    """
    content = _MARK + zlib.compress(json.dumps(dict(metadata)).encode(), 9)
    if len(content) > _LONGEST:
        raise ConfigError(
            f"the header takes {len(content):,} bytes and a zip archive's comment has at most"
            f" {_LONGEST:,}; write safetensors"
        )
    return content


def unpack(comment: bytes) -> dict[str, str]:
    """Unpack the texts of a comment; none if the comment is another program's.

    Raises:
        WeightsError: the comment is damaged.
    """
    if not comment.startswith(_MARK):
        if _PACKED in comment[: len(_MARK) + _SHIFT]:
            raise WeightsError("the comment at the end of the archive is damaged (its mark is another)")
        return {}
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(comment[len(_MARK) :], _LARGEST)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("its end is missing")
        metadata = parse_json(content)
        if not all(isinstance(each, str) for pair in metadata.items() for each in pair):
            raise ValueError("not texts")
    except (zlib.error, ValueError, AttributeError) as error:
        raise WeightsError(f"the comment at the end of the archive is damaged ({error})") from None
    return metadata
