"""Write docs/smaller_types.md's table: what must stay in float32, of channels as trained models have.

    python -m evidence.smaller_types [--only MODEL] [--write]

Each row is a search by itself, in a process of its own with one thread; some ten minutes for all. The
weights are drawn; from a quarter of the depth on two channels of the residual stream are larger than
the others, by 100 or by so much that they are beyond float16, as trained models have them (arXiv
2402.17762). With --write the rows that were made replace those of the page. Exit status 1 if a search
does not end within its bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from evidence import ROOT
from parity.measure.redraw import redraw
from vit_config import Preprocess, preset, write_weights
from vit_config.parameters import parameters

PAGE = ROOT / "docs" / "smaller_types.md"
HEAD = "| model | channels | type | bound | with none | kept | what | error | MB | CPU s | GB |"
MODELS = {
    "ViT-S/16": ("vit_small_patch16_224", None),
    "DINOv2-S/14": ("vit_small_patch14_dinov2", (224, 224)),
    "SigLIP-B/16": ("vit_base_patch16_siglip_224", None),
    "CLIP-B/32": ("vit_base_patch32_clip_224", None),
}
"""Presets, and the size of image where it is not theirs."""
CASES = (
    ("x 100", "float16", 1e-2), ("beyond float16", "float16", 1e-2), ("x 100", "bfloat16", 2e-2),
    ("x 100", "int8", 5e-2),
)  # fmt: skip
"""Channels, type and bound."""
CHANNELS = (7, 201)
BEYOND = 4e5
"""What the weights of a channel that is to be beyond float16 add up to."""


def write_model(path: Path, model: str, channels: str) -> None:
    """Write drawn weights with two large channels."""
    cfg = preset(MODELS[model][0])
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    at = f"blocks.{cfg.depth // 4}"
    weight, bias = arrays[f"{at}.mlp.fc2.weight"], arrays[f"{at}.mlp.fc2.bias"]  # (D, M), (D,)
    rows = list(CHANNELS)
    weight[rows] *= 100
    bias[rows] *= 100
    if channels != "x 100":
        bias[rows] += [6e4, -6e4]  # which float16 holds, but not with the product
        weight[rows] *= BEYOND / np.abs(weight[rows]).sum(1, keepdims=True)
    write_weights(path, cfg, arrays, Preprocess(crop_fraction=0.9))


def row(model: str, channels: str, dtype: str, bound: float) -> dict[str, Any]:
    """Search one program."""
    import torch

    from parity.exporting.checks import Checks
    from parity.exporting.compare import pictures
    from parity.exporting.formats import FORMATS
    from parity.exporting.subject import subject_of

    torch.set_num_threads(1)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "drawn.safetensors")
        write_model(path, model, channels)
        subject = subject_of(path, input="float32", dtype=dtype, image_size=MODELS[model][1])
    kept = Checks(subject, FORMATS["onnx"], pictures(subject), bound).find(["auto"])
    what: dict[str, int] = {}
    for each in kept.operations:
        what[f"{each.line} {each.kind}"] = what.get(f"{each.line} {each.kind}", 0) + 1
    return {
        "low": kept.low, "kept": len(kept.operations), "of": kept.candidates, "error": kept.error,
        "bytes": sum(each.bytes for each in kept.operations), "what": what,
        "cpu": time.process_time() - started,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def line_of(model: str, channels: str, dtype: str, bound: float, made: dict[str, Any]) -> str:
    """One line of the table."""
    what = ", ".join(f"{each} x {count}" for each, count in made["what"].items()) or "-"
    return (
        f"| {model} | {channels} | {dtype} | {bound:g} | {made['low']:.1e}"
        f" | {made['kept']} of {made['of']}"
        f" | {what} | {made['error']:.1e} | {made['bytes'] / 1e6:.1f} | {made['cpu']:.0f}"
        f" | {made['peak']:.1f} |"
    )


def put(line: str) -> None:
    """Put a line into the page, in place of the one for the same model, channels and type."""

    def key(each: str) -> list[str]:
        return each.split("|")[1:4]

    before, _, rest = PAGE.read_text().partition(HEAD)
    table, _, after = rest.strip("\n").partition("\n\n")
    rule, *rows = table.splitlines()
    at = next((i for i, each in enumerate(rows) if key(each) == key(line)), len(rows))
    rows[at : at + 1] = [line]
    PAGE.write_text("\n".join([before + HEAD, rule, *rows, "", after.rstrip("\n"), ""]))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=MODELS, help="one model")
    parser.add_argument("--write", action="store_true", help="put the rows into the page")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        model, channels, dtype, bound = given.row
        print(json.dumps(row(model, channels, dtype, float(bound))))
        return 0
    missed = 0
    for model in [given.only] if given.only else MODELS:
        for channels, dtype, bound in CASES:
            words = ["-m", "evidence.smaller_types", "--row", model, channels, dtype, str(bound)]
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
            made = json.loads(done.stdout.splitlines()[-1])
            line = line_of(model, channels, dtype, bound, made)
            missed += made["error"] > bound
            print(line, flush=True)
            if given.write:
                put(line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
