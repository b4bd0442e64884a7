"""Every dialect into every other: what is exact, what is refused and why.

    python tools/dialect_table.py [--write docs/dialect_table.md]

For each dialect a small random model that it can say is written in it, read, and converted to every
family of dialects; what was written is read again and compared bit by bit. Exit status 1 if anything
comes back different.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.measure.redraw import redraw
from parity.porting.checkpoint import Checkpoint, read_checkpoint
from parity.porting.conversion import Converted, convert
from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import NEUTRAL, Dialect
from vit_config import ConfigError, Rope, ViTConfig, parameters, write_weights

BASE = ViTConfig(
    image_size=24, patch_size=8, hidden_size=40, depth=3, num_heads=5, mlp_dim=52, num_classes=7
)
PUBLISHED = {"hidden_size": 192, "num_heads": 3}
DINOV3 = {
    "pos_embed": "none",
    "rope": Rope(kind="centered", theta=100.0, pairs="half"),
    "register_tokens": 2,
    "layer_scale": 1e-5,
    "norm_eps": 1e-5,
}
TOWER = {"num_classes": 0, "pool": "map", "class_token": False, "act": "gelu_tanh"}
CLIP = {"patch_bias": False, "pre_norm": True, "head_bias": False, "norm_eps": 1e-5}
CHANGES: dict[str, dict[str, Any]] = {
    "dinov3-masked": {**DINOV3, "k_bias": False, "num_classes": 0},
    "dinov3-unmasked": {**DINOV3, "num_classes": 0},
    "dinov2": {"register_tokens": 2, "pos_embed_prefix": "class", "layer_scale": 1e-5, "num_classes": 0},
    "deit3": {**PUBLISHED, "layer_scale": 1e-6, "pos_embed_prefix": "none"},
    "mae": {**PUBLISHED, "num_classes": 0},
    "deit": {**PUBLISHED, "distill_token": True},
    "open-clip": CLIP,
    "open-clip-tower": CLIP,
    "clip": {**CLIP, "hidden_size": 128, "num_heads": 2, "mlp_dim": 512, "act": "quick_gelu"},
    "timm-eva": {"rope": Rope(), "k_bias": False, "layer_scale": 1e-5},
    "timm-eva-split": {"rope": Rope(), "k_bias": False, "mlp": "swiglu", "act": "silu"},
    "vit-pytorch-one-head": {"num_heads": 1},
    "hf-beit": {"rel_pos_bias": True, "pos_embed": "none", "layer_scale": 0.1, "final_norm": "post_pool",
                "pool": "mean"},
    "hf-deit": {"distill_token": True},
    "hf-vit-mae": {"num_classes": 0},
    "hf-dinov2": {"layer_scale": 1.0, "mlp_dim": 80, "num_classes": 0},
    "hf-dinov2-registers": {"layer_scale": 1.0, "mlp_dim": 80, "register_tokens": 2,
                            "pos_embed_prefix": "class"},
    "hf-dinov3": {**DINOV3, "k_bias": False, "num_classes": 0},
    "hf-siglip-vision": TOWER,
    "hf-siglip2-vision": {**TOWER, "patch_embed": "linear_hwc"},
}  # fmt: skip
"""What the sample of a dialect has beyond the first value that the dialect allows of each field."""


class Cell(NamedTuple):
    """One dialect into a family."""

    source: str
    family: str
    symbol: str
    said: str


SYMBOLS = {"=": "exact", "~": "exact, rewritten", "-": "refused", "!": "DIFFERENT"}


def sample(dialect: Dialect) -> ViTConfig:
    """A small schema that a dialect can say.

    Raises:
        ConfigError: none was found.
    """
    cfg = BASE.replace(**CHANGES.get(dialect.name, {}))
    while problems := dialect.problems(cfg):
        if "" in problems:
            raise ConfigError(f"{dialect.name}: {problems['']}")
        cfg = cfg.replace(**{name: next(iter(dialect.allowed(name, cfg))) for name in problems})
    return cfg


def write_sample(dialect: Dialect, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A random model in a dialect, as a file or folder; and what has to be said when it is read."""
    cfg = sample(dialect)
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    own = folder / "own.safetensors"
    write_weights(own, cfg, arrays)
    if dialect.name == "parity":
        return own, {}
    out = folder / dialect.name
    convert(own, to=dialect.name, out=out)
    return out, {}


def table(folder: Path) -> Iterator[Cell]:
    """Convert every dialect's sample to every family."""
    families = list(dict.fromkeys(each.family for each in dialects() if each.writes))
    for dialect in dialects():
        if not dialect.writes:
            continue
        inside = folder / dialect.name
        inside.mkdir()
        path, reading = write_sample(dialect, inside)
        source = read_checkpoint(path, **reading)
        for family in families:
            yield _cell(source, family, inside)


def _cell(source: Checkpoint, family: str, folder: Path) -> Cell:
    name = source.dialect.name
    out = folder / f"to-{family}"
    try:
        converted = convert(source, to=family, out=out)
    except ConfigError as error:
        return Cell(name, family, "-", str(error).partition(": ")[2] or str(error))
    said = [*converted.target.state.said]
    problem = _difference(converted)
    if problem:
        return Cell(name, family, "!", problem)
    return Cell(name, family, "~" if said else "=", "; ".join([converted.dialect, *said]))


def _difference(converted: Converted) -> str:
    """In what the written file, read again, is another model; empty if in nothing."""
    back = read_checkpoint(converted.path)
    expected = converted.target.state
    lost = (*NEUTRAL, "layer_scale")  # no matter for the function, and not in every kind of file
    for name in expected.config.fields():
        if name not in lost and getattr(back.config, name) != getattr(expected.config, name):
            return f"{name} is another"
    for name, stored in expected.arrays.items():
        if not np.array_equal(back.arrays[name].load(), stored.load()):
            return f"{name} is another"
    return ""


def markdown(cells: list[Cell]) -> str:
    """The table and the reasons as a page."""
    families = list(dict.fromkeys(cell.family for cell in cells))
    sources = list(dict.fromkeys(cell.source for cell in cells))
    by_pair = {(cell.source, cell.family): cell for cell in cells}
    lines = [
        "# From dialect to dialect",
        "",
        "Written by `python tools/dialect_table.py --write docs/dialect_table.md`. Each row is a small",
        "random model in that dialect, converted to every family and read again: `=` exact, `~` exact",
        "after a rewriting that computes the same, `-` refused. The reasons follow.",
        "",
        "| from | " + " | ".join(families) + " |",
        "|---" * (len(families) + 1) + "|",
    ]
    for source in sources:
        symbols = " | ".join(by_pair[source, family].symbol for family in families)
        lines.append(f"| {source} | {symbols} |")
    for source in sources:
        lines += ["", f"**{source}**", ""]
        for family in families:
            cell = by_pair[source, family]
            lines.append(f"- to {family}: {SYMBOLS[cell.symbol]}: {cell.said}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cells = list(table(Path(folder)))
    page = markdown(cells)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")
    print("\n".join(line for line in page.splitlines() if line.startswith("|")))
    counts = {word: sum(cell.symbol == sign for cell in cells) for sign, word in SYMBOLS.items()}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    for cell in cells:
        if cell.symbol == "!":
            print(f"{cell.source} to {cell.family}: {cell.said}")
    return 1 if counts["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
