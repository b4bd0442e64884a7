"""Write docs/exporting_table.md: families x formats x types, each exported, read back and compared.

``python -m evidence.exporting_table [--only FAMILY] [--missing]`` exports two blocks of each family at
their real width and image size, with drawn weights, and times the artefact beside both twins: some
minutes of a core. Rows that are not made anew stay; --missing makes only those that are not there.
"""

import argparse
import itertools
import json
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
from parity.exporting.export import To
from parity.exporting.subject import DType
from parity.measure.redraw import redraw
from parity.porting.models.loaded import Loaded
from vit_config import Preprocess, ViTConfig, preset, write_weights
from vit_config.errors import first_line
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
    "CLIP": "vit_base_patch32_clip_224",
    "NaFlexViT": "naflexvit_base_patch16_gap",
    "CLIP, text": "",
}
TEXT = "CLIP, text"
"""The family whose text tower is exported; its sizes are those of OpenAI's ViT-B/32."""
CASES: tuple[tuple[To, DType], ...] = (
    ("onnx", "float32"),
    ("stablehlo", "float32"),
    ("torch-export", "float32"),
    ("onnx", "float16"),
    ("stablehlo", "bfloat16"),
    ("torch-export", "bfloat16"),
    ("onnx", "int8"),
)
TIMES = 9
HEAD = """# What was exported

For those who want to know whether their model leaves unharmed. `python -m evidence.exporting_table`
exports the first {depth} blocks of each family at their real width and image size, with drawn weights
and `--input float32`, reads what was written in a process without its source, and compares it with both
twins ([exporting.md](exporting.md); that pictures inside are PIL's is a test of its own).
*CLIP, text* is the text tower, of texts of 77 tokens.

*error* is the largest relative distance of an output to the float64 run on the same rounded weights,
*twins* the largest of the twins' own, *limit* that output's; int8 has none, its error is its cost.
*ms* is the processor's time, of all threads together, so that it hardly depends on what else ran: the
median of {times} turns, each of which ran all three on one image or text, the twins in float32,
ONNX Runtime and PyTorch with one thread.
ONNX Runtime does not compute in bfloat16 on a CPU; float16 takes its place. NaFlexViT is exported at
one image size, as every model is; batches of several ([naflex.md](naflex.md)) are not.

{where}

| family | format | type | error | twins | limit | MB | ms | JAX twin, ms | PyTorch twin, ms |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|
"""


def config_of(family: str, depth: int = 2) -> ViTConfig:
    """The first blocks of a family's architecture, at its own size."""
    return preset(FAMILIES[family]).replace(depth=depth)


def write_source(path: Path, family: str, depth: int = 2) -> Path:
    """A checkpoint of drawn weights: a file, or transformers' folder of both towers."""
    if family != TEXT:
        write_drawn(path, config_of(family, depth))
        return path
    import torch

    from parity.porting.reading.libraries.peers import import_timm

    import_timm()  # declares the operators without which torchvision does not load on some machines
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    tower = {"num_hidden_layers": depth}
    model = CLIPModel(CLIPConfig(text_config=dict(tower), vision_config=dict(tower)))
    with torch.no_grad():
        for value in model.parameters():  # half of them are zeros and ones
            value.add_(0.02 * torch.randn_like(value))
    model.save_pretrained(path.with_suffix(""))
    return path.with_suffix("")


def write_drawn(path: Path, cfg: ViTConfig) -> None:
    """A file of drawn weights."""
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    write_weights(path, cfg, arrays, Preprocess(crop_fraction=0.9))


def reader(path: Path, to: str) -> Callable[[np.ndarray], object]:
    """Return a function that answers pictures from an artefact, here."""
    if to == "onnx":
        import onnxruntime

        how = onnxruntime.SessionOptions()
        how.intra_op_num_threads = 1  # others wait by spinning, which counts
        session = onnxruntime.InferenceSession(str(path), how, providers=["CPUExecutionProvider"])
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


def measured(family: str, to: To, dtype: DType, source: Path, twins: list[Loaded]) -> dict:
    """One row."""
    suffix = {"onnx": ".onnx", "stablehlo": ".stablehlo", "torch-export": ".pt2"}[to]
    out = source.with_name(f"out{suffix}")
    given = "tokens" if family == TEXT else "float32"
    done = parity.export(source, out, to=to, dtype=dtype, input=given, force=True)
    worst = max(done.compared, key=lambda each: each.error / (each.limit or 1))
    random = np.random.default_rng(0)
    if family == TEXT:
        ids = random.integers(0, 49407, (1, 77), dtype=np.int32)
        ids[0, 70:] = 49407
        laid, ours = ids, [lambda twin=twin: twin.texts.embed(ids) for twin in twins]
    else:
        cfg = config_of(family)
        image = random.standard_normal((1, *cfg.image_size, cfg.in_channels)).astype(np.float32)
        laid = image if to == "stablehlo" else np.ascontiguousarray(image.transpose(0, 3, 1, 2))
        ours = [lambda twin=twin: twin.of_batch(image) for twin in twins]
    answer = reader(out, to)
    sides = [lambda: answer(laid), *ours]
    for side in sides:
        side()
    turns = []
    for _ in range(TIMES):
        turn = []
        for side in sides:
            began = time.process_time()
            side()
            turn.append(1000 * (time.process_time() - began))
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
    lines = [HEAD.format(depth=2, times=TIMES, where=where)]
    for family in FAMILIES:
        for to, dtype in CASES:
            if (row := rows.get(f"{family}/{to}/{dtype}")) is None:
                continue
            limit = "-" if row["limit"] is None else f"{row['limit']:.1e}"
            ms = " | ".join(f"{each:.0f}" for each in row["ms"])
            lines.append(
                f"| {family} | {to} | {dtype} | {row['error']:.1e} | {row['twins']:.1e} |"
                f" {limit} | {row['MB']:.1f} | {ms} |\n"
            )
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--only", choices=FAMILIES, help="the rows of one family")
    parser.add_argument("--missing", action="store_true", help="the rows that are not there yet")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    rows = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    for (to, dtype), family in itertools.product(CASES, [options.only] if options.only else FAMILIES):
        if options.missing and f"{family}/{to}/{dtype}" in rows:
            continue
        with tempfile.TemporaryDirectory() as name:
            source = write_source(Path(name, "own.safetensors"), family)
            twins = [parity.load(source, framework=each) for each in ("jax", "torch")]
            rows[f"{family}/{to}/{dtype}"] = measured(family, to, dtype, source, twins)
        print(family, to, dtype, rows[f"{family}/{to}/{dtype}"], flush=True)
        KEPT.write_text(json.dumps(rows, indent=1) + "\n")
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
