"""Write vit_config/presets/flops.json: the FLOPs of every preset, and the parameters of our own.

python tools/count_flops.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from parity.twins.anatomy import anatomy
from vit_config import PRESETS
from vit_config.presets import from_timm
from vit_config.presets.costs import PATH


@dataclass(frozen=True)
class Options:
    """Count the FLOPs and parameters of every preset; refuse, by name, what timm counts otherwise."""

    out: Path = PATH
    """The file to write."""


def main(options: Options) -> int:
    """Write the file; 1 where a number of parameters is not timm's."""
    flops, parameters, differ = {}, {}, []
    timm = from_timm.architectures()
    for name in sorted(PRESETS):
        model = anatomy(PRESETS[name])[0]
        flops[name] = model.flops
        if name not in timm:
            parameters[name] = model.parameters
        elif model.parameters != timm[name]["parameters"]:
            differ.append(f"{name}: {model.parameters} parameters, {timm[name]['parameters']} in timm")
    options.out.write_text(
        json.dumps({"parameters": parameters, "flops": flops}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"{len(flops)} presets")
    print(*differ, sep="\n", end="\n" if differ else "", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
