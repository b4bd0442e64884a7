"""Image sizes on the command line."""

from __future__ import annotations

import re

from vit_config import ConfigError

MAX_SIDE = 2**13
"""Most pixels of a side; beyond it the bytes of attention weights no longer fit in 64 bits."""


def parse_size(text: str | None, flag: str = "--image-size") -> tuple[int, int] | None:
    """Parse height and width from "HxW", or from one number for both; None for None.

    Raises:
        ConfigError: another text, or a side of more than `MAX_SIDE` pixels.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9}))?", text)
    size = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if 0 in size:
        raise ConfigError(f"{flag} {text}: expected height and width in pixels, such as 224x224")
    if max(size) > MAX_SIDE:
        raise ConfigError(f"{flag} {text}: a side has at most {MAX_SIDE} pixels here")
    return size
