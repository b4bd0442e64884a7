"""The digest of what JSON can hold, by which a change to it is noticed."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def json_digest(value: Any, *, compact: bool = False) -> str:
    """SHA-256 (hex) of a JSON value, however a file lays it out: keys sorted, ASCII.

    It is for accidents and small temptations: whoever means to forge a file can seal it again.

    Args:
        compact: without spaces, as certificates have it; checkpoints have them.

    Raises:
        ValueError: NaN or an infinity in what is to be compact.
    """
    separators = (",", ":") if compact else None
    text = json.dumps(value, sort_keys=True, separators=separators, allow_nan=not compact)
    return hashlib.sha256(text.encode()).hexdigest()
