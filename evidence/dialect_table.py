"""Every dialect into every other: what is exact, what is refused and why.

    python -m evidence.dialect_table [--write docs/dialect_table.md]     # as `make site` does

For each dialect a small random model that it can say is written in it, read, and converted to every
family of dialects; so are some models that are built in a less common way. What was written is read
again and compared bit by bit, and its names and shapes are compared with those of the target library's
own class, built on the meta device from the config file or the arguments that were written. Exit
status 1 if anything is different.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.measure.redraw import redraw
from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import NEUTRAL, Dialect
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.reading.libraries.installed import LIBRARIES, NoModelError, misfits
from parity.porting.writing.conversion import Converted, convert
from vit_config import ConfigError, Rope, ViTConfig, write_weights
from vit_config.errors import first_line
from vit_config.parameters import parameters

BASE = ViTConfig(
    image_size=(24, 24),
    patch_size=(8, 8),
    hidden_size=40,
    depth=3,
    num_heads=5,
    mlp_dim=52,
    num_classes=7,
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
TURNED = {"rope": Rope(axes="wh", offset=1.0), "dynamic_image_size": True}
GEMMA4: dict[str, Any] = {
    "num_heads": 4, "attention_head_dim": 8, "class_token": False, "patch_bias": False,
    "block": "sandwich", "centre_pixels": True, "qk_norm": True, "v_norm": True, "attention_scale": 1.0,
    "qkv_bias": False, "attention_out_bias": False, "mlp": "swiglu", "act": "gelu_tanh",
    "mlp_bias": False, "linear_bounds": True, "norm": "rmsnorm", "pos_embed": "factorized",
    "pos_embed_grid": (9, 9), "pos_embed_resize": "leading_rows", "dynamic_image_size": True,
    "patch_embed": "linear_chw", "rope": Rope(theta=100.0, axes="wh", pairs="half_of_axis"),
}  # fmt: skip
SQUARES = {
    "num_classes": 0, "final_norm": "none", "pool": "soft", "pool_window": 3, "pool_standardise": True,
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "timm-gemma4": {**GEMMA4, "final_norm": "post_pool", "final_norm_affine": False, "pool": "mean"},
    "timm-gemma4-encoder": {**GEMMA4, **SQUARES},
    "hf-gemma4-vision": {**GEMMA4, **SQUARES, "patch_embed": "linear_hwc", "image_size": 384},
    "dinov3-masked": {**DINOV3, "k_bias": False, "num_classes": 0},
    "dinov3-unmasked": {**DINOV3, "num_classes": 0},
    "dinov2": {"register_tokens": 2, "pos_embed_prefix": "class", "layer_scale": 1e-5, "num_classes": 0},
    "deit3": {**PUBLISHED, "layer_scale": 1e-6, "pos_embed_prefix": "none"},
    "mae": {**PUBLISHED, "num_classes": 0},
    "deit": {**PUBLISHED, "distill_token": True},
    "open-clip": CLIP,
    "open-clip-tower": CLIP,
    "open-clip-siglip": TOWER,
    "clip": {**CLIP, "hidden_size": 128, "num_heads": 2, "mlp_dim": 512, "act": "quick_gelu"},
    "timm-eva": {"rope": Rope(), "k_bias": False, "layer_scale": 1e-5},
    "timm-eva-split": {"rope": Rope(), "k_bias": False, "mlp": "swiglu", "act": "silu"},
    "vit-pytorch-one-head": {"num_heads": 1},
    "hf-flax-dinov2": {"layer_scale": 1.0, "mlp_dim": 80, "num_classes": 0},
    "eva-clip": {"rope": Rope(), "k_bias": False, "attention_norm": True, "mlp": "swiglu", "act": "silu",
                 "mlp_norm": True},
    "hf-beit": {"rel_pos_bias": True, "pos_embed": "none", "layer_scale": 0.1, "final_norm": "post_pool",
                "pool": "mean"},
    "hf-deit": {"distill_token": True},
    "hf-vit-mae": {"num_classes": 0},
    "hf-dinov2": {"layer_scale": 1.0, "mlp_dim": 80, "num_classes": 0},
    "hf-dinov2-registers": {"layer_scale": 1.0, "mlp_dim": 80, "register_tokens": 2,
                            "pos_embed_prefix": "class"},
    "hf-dinov3": {**DINOV3, "k_bias": False, "num_classes": 0},
    "bonsai-dinov3": {**DINOV3, "k_bias": False, "num_classes": 0},
    "jimm-siglip": TOWER,
    "keras-hub-dinov2": {"layer_scale": 1.0, "register_tokens": 2, "pos_embed_prefix": "class",
                         "num_classes": 0},
    "keras-hub-dinov3": {**DINOV3, "k_bias": False, "num_classes": 0},
    "keras-hub-siglip": TOWER,
    "perception-core": {**CLIP, **TURNED, "pool": "map", "pool_mlp_dim": 160, "pool_prefix": True},
    "perception-tokens": {**CLIP, **TURNED, "head_bias": True, "num_classes": 0},
    "hf-siglip-vision": TOWER,
    "hf-siglip2-vision": {**TOWER, "patch_embed": "linear_hwc"},
    "hf-siglip-tokens": {**TOWER, "pool": "mean"},
    "hf-siglip2-tokens": {**TOWER, "pool": "mean", "patch_embed": "linear_hwc"},
    "hf-janus-vision": {**TOWER, "pool": "mean"},
    "hf-blip-vision": {"num_classes": 0},
    "hf-blip2-vision": {"num_classes": 0},
    "hf-owlvit-vision": {**CLIP, "head_bias": True, "num_classes": 0},
    "hf-aimv2-tokens": {"num_classes": 0, "class_token": False, "pool": "mean", "norm": "rmsnorm",
                        "patch_norm": True, "mlp": "swiglu", "act": "silu"},
    "hf-internvl-vision": {"num_classes": 0, "layer_scale": 0.1, "final_norm": "none"},
    "hf-tipsv2-vision": {"num_classes": 0, "layer_scale": 1.0, "mlp_dim": 80, "register_tokens": 1,
                         "pos_embed_prefix": "class"},
    "hf-sapiens2": {**DINOV3, "num_classes": 0, "norm": "rmsnorm", "layer_scale_on": "attention",
                    "mlp": "swiglu_packed", "act": "silu", "qk_norm": True, "num_kv_heads": (5, 1, 5)},
    "hf-videomae-frame": {"class_token": False, "pos_embed": "sincos1d", "pool": "mean", "k_bias": False,
                          "final_norm": "post_pool", "norm_eps": 1e-5},
}  # fmt: skip
"""What the sample of a dialect has beyond the first value that the dialect allows of each field."""
DINOV2 = {"layer_scale": 1e-5, "mlp_dim": 160, "dynamic_image_size": True}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "timm-vit, registers without rows": (
        "timm-vit",
        {**DINOV2, "register_tokens": 4, "pos_embed_prefix": "none", "num_classes": 0},
    ),
    "timm-vit, registers with rows": ("timm-vit", {**DINOV2, "register_tokens": 4}),
    "timm-vit, distilled": ("timm-vit", {"distill_token": True}),
    "timm-vit, mean": ("timm-vit", {"pool": "mean", "final_norm": "post_pool"}),
    "timm-vit, no class token": ("timm-vit", {"pool": "mean", "class_token": False}),
    "timm-vit, attention pool": ("timm-vit", {**TOWER, "mlp_dim": 80}),
    "timm-vit, norm_eps of its own": ("timm-vit", {"norm_eps": 1e-12}),
    "timm-vit, gated": ("timm-vit", {**DINOV2, "mlp": "swiglu_packed", "act": "silu", "mlp_dim": 112}),
    "hf-vit, pooler": ("hf-vit", {"num_classes": 0, "head_hidden": 40}),
    "hf-vit, bare": ("hf-vit", {"num_classes": 0}),
    "hf-deit, one head": ("hf-deit", {"register_tokens": 1}),
    "hf-beit, bare": (
        "hf-beit",
        {"num_classes": 0, "layer_scale": 0.1, "pool": "class", "final_norm": "pre_pool"},
    ),
    "hf-dinov2, classifier": ("hf-dinov2", {**DINOV2, "pool": "class_mean"}),
    "hf-dinov2-registers, gated": (
        "hf-dinov2-registers",
        {**DINOV2, "register_tokens": 2, "pos_embed_prefix": "class", "mlp": "swiglu_packed",
         "act": "silu", "mlp_dim": 112, "num_classes": 0},
    ),
    "hf-clip-vision, bare": ("hf-clip-vision", {**CLIP, "head_bias": True, "num_classes": 0}),
    "hf-siglip2-vision, as images": ("hf-siglip-vision", {**TOWER, "norm_eps": 1e-12}),
    "torchvision, hidden layer": ("torchvision", {"head_hidden": 28}),
}  # fmt: skip
"""Models that are built in another way than their dialect's sample: which dialect, and what it has
beyond the first values."""


class Cell(NamedTuple):
    """One dialect into a family."""

    source: str
    family: str
    symbol: str
    said: str
    checked: bool = False
    """Whether the library that it was written for is here and its own class was asked."""


SYMBOLS = {"=": "exact", "~": "exact, rewritten", "-": "refused", "!": "DIFFERENT"}


def sample(dialect: Dialect, changes: Mapping[str, Any] | None = None) -> ViTConfig:
    """A small schema that a dialect can say.

    Args:
        changes: what it has beyond the first value that the dialect allows; by default `CHANGES`.

    Raises:
        ConfigError: none was found.
    """
    cfg = BASE.replace(**(CHANGES.get(dialect.name, {}) if changes is None else changes))
    while problems := dialect.problems(cfg):
        if "" in problems:
            raise ConfigError(f"{dialect.name}: {problems['']}")
        cfg = cfg.replace(**{name: next(iter(dialect.allowed(name, cfg))) for name in problems})
    return cfg


def write_sample(
    dialect: Dialect, folder: Path, changes: Mapping[str, Any] | None = None
) -> tuple[Path, dict[str, Any]]:
    """A random model in a dialect, as a file or folder; and what has to be said when it is read."""
    cfg = sample(dialect, changes)
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


def sources() -> dict[str, tuple[Dialect, Mapping[str, Any] | None]]:
    """The rows of the table: a dialect each, and how its model is built."""
    rows: dict[str, tuple[Dialect, Mapping[str, Any] | None]] = {}
    for dialect in dialects():
        if dialect.writes:
            rows[dialect.name] = (dialect, None)
            of_it = {name: changes for name, (its, changes) in VARIANTS.items() if its == dialect.name}
            rows |= {name: (dialect, changes) for name, changes in of_it.items()}
    return rows


def table(folder: Path, families: Sequence[str] | None = None) -> Iterator[Cell]:
    """Convert every dialect's samples to every family, or to some."""
    families = families or list(dict.fromkeys(each.family for each in dialects() if each.writes))
    for number, (name, (dialect, changes)) in enumerate(sources().items()):
        inside = folder / str(number)
        inside.mkdir()
        path, reading = write_sample(dialect, inside, changes)
        source = read_checkpoint(path, **reading)
        for family in families:
            yield _cell(name, source, family, inside)


def _cell(name: str, source: Checkpoint, family: str, folder: Path) -> Cell:
    out = folder / f"to-{family}"
    try:
        converted = convert(source, to=family, out=out)
    except ConfigError as error:
        return Cell(name, family, "-", str(error).partition(": ")[2] or str(error))
    said = [*converted.target.state.said]
    back = read_checkpoint(converted.path)
    problem = _difference(converted, back)
    checked = False
    with suppress(NoModelError):
        problem = problem or "; ".join(misfits(back)[:6])
        checked = True
    if problem:
        return Cell(name, family, "!", problem, checked)
    return Cell(name, family, "~" if said else "=", "; ".join([converted.dialect, *said]), checked)


def _difference(converted: Converted, back: Checkpoint) -> str:
    """Return the first difference of the written file, read again; empty if there is none."""
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
        "For those who want to know whether a conversion is exact before they try it.",
        "",
        "Written by `python -m evidence.dialect_table --write docs/dialect_table.md`",
        f"on {date.today()}. Each row is a small",
        "random model in that dialect, converted to every family and read again: `=` exact, `~` exact",
        "after a rewriting that computes the same, `-` refused. The reasons follow.",
        "",
        "Names and shapes of what was written were compared with those of the target library's own",
        "class, built from the config file or the arguments that were written, where it was installed:",
        f"{_judges()}.",
        "",
        "| from | " + " | ".join(families) + " |",
        "|---" * (len(families) + 1) + "|",
    ]
    for source in sources:
        symbols = " | ".join(by_pair[source, family].symbol for family in families)
        lines.append(f"| {source} | {symbols} |")
    for source in sources:
        lines += ["", f"**{source}**", ""]
        lines += [line_of(by_pair[source, family]) for family in families]
    return "\n".join(lines) + "\n"


def line_of(cell: Cell) -> str:
    """Return a cell as a line of the page."""
    return f"- to {cell.family}: {SYMBOLS[cell.symbol]}: {cell.said}"


def _judges() -> str:
    """The libraries that were asked, with their versions."""
    asked = {each.name.replace("open_clip", "open_clip_torch") for each in LIBRARIES.values()}
    return ", ".join(f"{name} {version(name)}" for name in sorted(asked))


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
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
    print(f"{sum(cell.checked for cell in cells)} compared with the library's own class")
    for cell in cells:
        if cell.symbol == "!":
            print(f"{cell.source} to {cell.family}: {cell.said}")
    return 1 if counts["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
