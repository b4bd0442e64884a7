"""The costs of each preset: its parameters, and the FLOPs of one image.

``tools/count_flops.py`` writes ``flops.json``, by running every preset's model without values. The
file has ``flops`` of every preset, and ``parameters`` of those that are not timm's: timm's own count
of the others is in ``timm.json``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vit_config.errors import ConfigError
from vit_config.presets import PRESETS, from_timm, preset

PATH = Path(__file__).with_name("flops.json")


class Cost(NamedTuple):
    """The costs of a model."""

    parameters: int
    """Numbers in all its parameters."""
    flops: int
    """FLOPs of one image of the schema's size: two for each multiply-add of a matrix product or
    convolution, attention's products among them; elementwise work is not counted."""


@cache
def data() -> dict[str, dict[str, int]]:
    """Read the file, when it is first asked for."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def costs(name: str) -> Cost:
    """Return the costs of a preset, without a tag.

    Raises:
        ConfigError: there is no such preset, or the name has a tag, whose model may cost something else.
    """
    if name not in PRESETS:
        preset(name)
        raise ConfigError(f"{name!r}: costs are of an architecture, not of its tags; leave the tag out")
    entry = from_timm.architectures().get(name)
    parameters = data()["parameters"][name] if entry is None else entry["parameters"]
    return Cost(parameters, data()["flops"][name])
