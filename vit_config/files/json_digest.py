"""The digest of a JSON value, which detects a change to it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def json_digest(value: Any, *, compact: bool = False) -> str:
    """Compute SHA-256 (hex) of a JSON value, however a file lays it out: keys sorted, ASCII.

    The digest is for accidents and small temptations: a forger can seal a file again.

    Args:
        compact: without spaces, as for certificates; checkpoints have spaces.

    Raises:
        ValueError: NaN or an infinity in a compact value.
    """
    separators = (",", ":") if compact else None
    text = json.dumps(value, sort_keys=True, separators=separators, allow_nan=not compact)
    return hashlib.sha256(text.encode()).hexdigest()
