"""The Flax models that transformers had up to version 4: ``flax_model.msgpack`` beside ``config.json``.

Their modules had the names of the PyTorch ones, so their tables are derived from those: levels are
joined by ``/``, a layer's ``weight`` is a ``kernel`` with inputs first, a norm's ``weight`` a ``scale``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.records.hf import beit, clip, dinov2, vit
from parity.porting.dialects.records.hf.config import HfSettings
from parity.porting.dialects.table import Row, Table

CONV, DENSE = "p q c o -> o c p q", "i o -> o i"


def _spelled(name: str) -> str:
    """Return the Flax name of a PyTorch tensor; also works on patterns of names."""
    *path, leaf = name.split(".")
    if leaf == "weight" and path:
        layer = path[-1]
        leaf = "scale" if "norm" in layer else "embedding" if layer == "position_embedding" else "kernel"
    return "/".join((*path, leaf))


def _mark(mark: str) -> str:
    names = (each.partition(":") for each in mark.split("|"))
    return "|".join(f"{_spelled(name)}{colon}{axes}" for name, colon, axes in names)


def _row(row: Row) -> Row:
    theirs = tuple(map(_spelled, row.theirs))
    if not theirs[0].endswith("/kernel"):
        return replace(row, theirs=theirs)
    conv = row.ours == ("patch_embed.proj.weight",)
    return replace(row, theirs=theirs, layout=CONV if conv else DENSE)


def flax(dialect: Dialect, *tables: Table) -> Dialect:
    """Derive the Flax dialect of a PyTorch one, given the tables that its files can have."""
    return replace(
        dialect,
        name=dialect.name.replace("hf-", "hf-flax-"),
        title=f"{dialect.title} in Flax",
        family="hf-flax",
        tables=tuple(tuple(map(_row, table)) for table in tables),
        marks=tuple(map(_mark, dialect.marks)),
        buffers={_spelled(name): made for name, made in dialect.buffers.items()},
        ignored=tuple(map(_spelled, dialect.ignored)),
        foreign={_spelled(name): what for name, what in dialect.foreign.items()},
        body=dialect.body.replace(".", "/"),
        beside=tuple(name.replace(".", "/") for name in dialect.beside),
        container="msgpack",
        weights_name="flax_model.msgpack",
    )


def _rooted(dialect: Dialect) -> Dialect:
    """Return the dialect with `body` always in its names, not only beside a head."""

    def place(name: str) -> str:
        return name if name.startswith(dialect.beside) else f"{dialect.body}{name}"

    def place_mark(mark: str) -> str:
        return f"!{place(mark[1:])}" if mark.startswith("!") else place(mark)

    tables = tuple(
        tuple(replace(row, theirs=tuple(map(place, row.theirs))) for row in table)
        for table in dialect.tables
    )
    return replace(
        dialect, tables=tables, marks=tuple(map(place_mark, dialect.marks)), body="", beside=()
    )


def _scaled_twice(entries: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason if ``FlaxDinov2LayerScale`` changed layer scales: it multiplied them twice by their
    initial value."""
    value = entries.get("layerscale_value", 1.0)
    if value != 1:
        yield f"layerscale_value = {value}, by whose square its Flax code multiplied its layer scales"


def _ungated(dialect: Dialect) -> Dialect:
    """Restrict DINOv2 to models that the Flax code could build: one with a gated MLP never ran."""
    assert isinstance(dialect.settings, HfSettings)
    settings = replace(dialect.settings, differs=_scaled_twice, only={"use_swiglu_ffn": (False,)})
    can = {**dialect.can, "mlp": ("mlp",), "layer_scale": (1.0,)}
    return replace(dialect, settings=settings, can=can)


DIALECTS = (
    flax(_ungated(dinov2.DIALECTS[0]), dinov2.TABLES[0]),
    flax(vit.DIALECTS[0], vit.CLASSIFIER, vit.POOLED),
    flax(beit.DIALECTS[1], beit.TABLE),
    _rooted(flax(clip.DIALECTS[0], *clip.DIALECTS[0].tables)),
)
