"""Write docs/exporting_table.md: families x formats x types, each exported, read back and compared.

``python -m evidence.exporting_table [--only FAMILY]`` exports two blocks of each family at their
real width and image size, with drawn weights, and times the artefact beside both twins: some minutes
of two cores. Rows that are not made anew stay.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

import parity
from evidence import ROOT
from parity.measure.redraw import redraw
from parity.porting.loaded import Loaded
from vit_config import Preprocess, ViTConfig, preset, write_weights
from vit_config.parameters import parameters

PAGE = ROOT / "docs" / "exporting_table.md"
KEPT = PAGE.with_suffix(".json")
FAMILIES = {
    "ViT": "vit_tiny_patch16_224",
    "DeiT, distilled": "deit_tiny_distilled_patch16_224",
    "DINOv2, registers": "vit_small_patch14_reg4_dinov2",
    "DINOv3": "vit_small_patch16_dinov3",
    "SigLIP": "vit_base_patch16_siglip_224",
    "EVA-02": "eva02_tiny_patch14_224",
}
CASES = (
    ("onnx", "float32"),
    ("stablehlo", "float32"),
    ("torch-export", "float32"),
    ("onnx", "float16"),
    ("stablehlo", "bfloat16"),
    ("torch-export", "bfloat16"),
)
TIMES = 9
HEAD = """# What was exported

For those who want to know whether their model leaves unharmed. `python -m evidence.exporting_table`
exports the first {depth} blocks of each family at their real width and image size, with drawn weights
and `--input float32`, reads what was written in a process without its source, and compares it with both
twins ([exporting.md](exporting.md); that pictures inside are PIL's is a test of its own).

*error* is the largest relative distance of an output to the float64 run on the same rounded weights,
*twins* the largest of the twins' own, *limit* that output's. *ms* is the median of {times} turns, each
of which ran all three on one image, on two cores that others used, too: order, not
speed, and under a load of more than one per core not even that. ONNX Runtime
does not compute in bfloat16 on a CPU; float16 takes its place. What has no row was not measured yet.

{where}

| family | format | type | error | twins | limit | MB | ms | JAX twin, ms | PyTorch twin, ms |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|
"""


def config_of(family: str, depth: int = 2) -> ViTConfig:
    """The first blocks of a family's architecture, at its own size."""
    return preset(FAMILIES[family]).replace(depth=depth)


def write_drawn(path: Path, cfg: ViTConfig) -> None:
    """A file of drawn weights."""
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    write_weights(path, cfg, arrays, Preprocess(crop_fraction=0.9))


def reader(path: Path, to: str) -> Callable[[np.ndarray], object]:
    """What answers pictures from an artefact, here."""
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda images: session.run(None, {"images": images})
    if to == "stablehlo":
        import jax
        from jax import export

        program = jax.jit(export.deserialize(bytearray(path.read_bytes())).call)
        return lambda images: jax.block_until_ready(program(images))
    import torch

    module = torch.export.load(path).module()

    def run(images: np.ndarray) -> object:
        with torch.no_grad():
            return module(torch.from_numpy(images))

    return run


def measured(cfg: ViTConfig, to: str, dtype: str, folder: Path, twins: list[Loaded]) -> dict:
    """One row."""
    suffix = {"onnx": ".onnx", "stablehlo": ".stablehlo", "torch-export": ".pt2"}[to]
    out = folder / f"out{suffix}"
    own = folder / "own.safetensors"
    done = parity.export(own, out, to=to, dtype=dtype, input="float32", force=True)
    worst = max(done.compared, key=lambda each: each.error / each.limit)
    shape = (1, *cfg.image_size, cfg.in_channels)
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    laid = image if to == "stablehlo" else np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    answer = reader(out, to)
    sides = [lambda: answer(laid), *(lambda twin=twin: twin.of_batch(image) for twin in twins)]
    for side in sides:
        side()
    turns = []
    for _ in range(TIMES):
        turn = []
        for side in sides:
            began = time.perf_counter()
            side()
            turn.append(1000 * (time.perf_counter() - began))
        turns.append(turn)
    return {
        "error": worst.error,
        "twins": max(worst.twins.values()),
        "limit": worst.limit,
        "MB": out.stat().st_size / 1e6,
        "ms": [statistics.median(each) for each in zip(*turns, strict=True)],
    }


def page(rows: dict[str, dict]) -> str:
    """The page of all rows."""
    packages = ("jax", "torch", "onnx", "onnxruntime", "onnxscript")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    where = f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {versions}."
    where += f" Load while it was measured: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
    lines = [HEAD.format(depth=2, times=TIMES, where=where)]
    for family in FAMILIES:
        for to, dtype in CASES:
            if (row := rows.get(f"{family}/{to}/{dtype}")) is None:
                continue
            ms = " | ".join(f"{each:.0f}" for each in row["ms"])
            lines.append(
                f"| {family} | {to} | {dtype} | {row['error']:.1e} | {row['twins']:.1e} |"
                f" {row['limit']:.1e} | {row['MB']:.1f} | {ms} |\n"
            )
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=FAMILIES, help="the rows of one family")
    only = parser.parse_args().only
    rows = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    for (to, dtype), family in itertools.product(CASES, [only] if only else FAMILIES):
        cfg = config_of(family)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_drawn(folder / "own.safetensors", cfg)
            twins = [
                parity.load(folder / "own.safetensors", framework=each) for each in ("jax", "torch")
            ]
            rows[f"{family}/{to}/{dtype}"] = measured(cfg, to, dtype, folder, twins)
        print(family, to, dtype, rows[f"{family}/{to}/{dtype}"], flush=True)
        KEPT.write_text(json.dumps(rows, indent=1) + "\n")
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
