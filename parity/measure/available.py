"""The memory that this process may still take."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_GROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")
"""What a container may take, and what it takes; the former is "max" where it may take all."""


def available() -> int | None:
    """Return the bytes that this process may still take; None where nothing tells: outside of Linux."""
    found: list[int] = []
    with suppress(OSError):
        text = Path("/proc/meminfo").read_text()
        found += [
            int(each) * 2**10 for each in re.findall(r"^MemAvailable: *(\d+) kB$", text, re.MULTILINE)
        ]
    with suppress(OSError, ValueError):
        most, taken = (int(Path(each).read_text()) for each in _GROUP)
        found.append(most - taken)
    return min(found, default=None)
