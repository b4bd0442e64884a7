"""The default names of run folders."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from vit_config.job import Job


def first_name(preset: str | None, config: Path | None, init: str | None) -> str:
    """Return the beginning of the name: after the file, the preset, or the checkpoint to start from."""
    if config:
        return config.stem
    if preset or not init:
        return preset or "digits"
    return Path(init.rpartition(":")[2]).name


def run_name(name: str, base: Job, job: Job) -> str:
    """Join `name` and each field in which `job` differs from `base`; a digest if that is too long."""
    before = base.flat()
    changed = {field: value for field, value in job.flat().items() if value != before.get(field)}
    parts = [f"{field.rpartition('.')[2]}={_plain(value)}" for field, value in changed.items()]
    full = "-".join([name, *parts])
    if len(full) > 80:
        full = f"{name}-{sha256(json.dumps(changed).encode()).hexdigest()[:12]}"
    return re.sub(r"[^\w.=+-]", "_", full)


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
