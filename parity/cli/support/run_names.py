"""What the folder of a run is called where nobody says it."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from vit_config.job import Job


def first_name(preset: str | None, config: Path | None, init: str | None) -> str:
    """How the name begins: after the file, the preset, or the start point."""
    if config:
        return config.stem
    if preset or not init:
        return preset or "digits"
    return Path(init.rpartition(":")[2]).name


def run_name(name: str, base: Job, job: Job) -> str:
    """`name`, and each field in which `job` differs from `base`; a digest where that is too long."""
    before = base.flat()
    changed = {field: value for field, value in job.flat().items() if value != before.get(field)}
    parts = [f"{field.rpartition('.')[2]}={_plain(value)}" for field, value in changed.items()]
    full = "-".join([name, *parts])
    if len(full) > 80:
        full = f"{name}-{sha256(json.dumps(changed).encode()).hexdigest()[:12]}"
    return re.sub(r"[^\w.=+-]", "_", full)


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
