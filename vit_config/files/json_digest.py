"""The digest of a JSON value, which detects a change to it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def json_digest(value: Any) -> str:
    """Compute SHA-256 (hex) of a JSON value, however a file lays it out: keys sorted, ASCII.

    The digest is for accidents and small temptations: a forger can seal a file again.
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
