"""The keyword options of `parity.read_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from vit_config import Preprocess


class Reading(TypedDict, total=False):
    """The options of `parity.read_checkpoint`, for functions that hand them on."""

    dialect: str | None
    part: str | None
    like: str | None
    given: Mapping[str, Any] | None
    override: Mapping[str, Any] | None
    adapter: str | Path | None
    preprocess: Preprocess | None
    license: str | None
