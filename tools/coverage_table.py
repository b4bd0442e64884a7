"""Print which switch of the schema how many of timm's architectures need, as a Markdown table.

python tools/coverage_table.py            # the table of docs/family.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from vit_config import PRESETS, ViTConfig
from vit_config.presets import from_timm

SIZES = {
    "image_size",
    "patch_size",
    "in_channels",
    "hidden_size",
    "depth",
    "num_heads",
    "mlp_dim",
    "num_classes",
}
"""Fields that every architecture has in some size, and that are no switches."""
HEADERS = ("vision_transformer", "deit", "eva", "beit", "naflexvit", "gemma4_vit")


def table() -> str:
    """One row for each value of each switch that some architecture has; the defaults left out."""
    default = ViTConfig()
    counts: dict[tuple[str, str], Counter[str]] = {}
    for name, entry in from_timm.architectures().items():
        for field, value in _switches(PRESETS[name], default):
            counts.setdefault((field, value), Counter())[entry["module"]] += 1
    fields = list(ViTConfig.fields())
    order = sorted(counts, key=lambda key: (fields.index(key[0].partition(".")[0]), key))
    lines = [
        f"| switch | value | all | {' | '.join(HEADERS)} |",
        f"|---|---|--:|{'--:|' * len(HEADERS)}",
    ]
    for field, value in order:
        by_module = counts[field, value]
        numbers = [by_module.total(), *(by_module[module] for module in HEADERS)]
        lines.append(f"| `{field}` | {value} | {' | '.join(str(n) if n else '' for n in numbers)} |")
    modules = Counter(entry["module"] for entry in from_timm.architectures().values())
    totals = [modules.total(), *(modules[module] for module in HEADERS)]
    lines.append(f"| | **architectures** | {' | '.join(map(str, totals))} |")
    return "\n".join(lines)


def _switches(cfg: ViTConfig, default: ViTConfig) -> Iterator[tuple[str, str]]:
    """The switches that differ from the default, with their values in words."""
    for field in ViTConfig.fields():
        value = getattr(cfg, field)
        if field in SIZES or value == getattr(default, field):
            continue
        if field == "rope":
            yield "rope.kind", value.kind
            yield "rope.axes", value.axes
            yield "rope.pairs", value.pairs
            if value.offset:
                yield "rope.offset", str(value.offset)
            if value.reference_grid:
                yield "rope.reference_grid", "given"
        elif field == "num_kv_heads":
            yield field, "per block" if isinstance(value, tuple) else "fewer"
        else:
            yield field, _text(field, value)


def _text(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "given" if field in ("layer_scale", "pool_num_heads", "pool_mlp_dim") else str(value)


if __name__ == "__main__":
    print(table())
