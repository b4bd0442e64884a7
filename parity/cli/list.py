"""``parity list``: list the presets and what they cost, or dialects, causes, deliberate mistakes."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.lists import print_causes, print_dialects, print_faults
from vit_config import ConfigError

JSON_VERSION = 1


@dataclass(frozen=True)
class ListModels:
    """List the presets: parameters, GFLOPs of one image, size of the input, the module of timm that has
    the model, and its number of pretrained tags. `parity inspect NAME` shows one preset.
    """

    patterns: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PATTERN ...]", help_behavior_hint=""),
    ] = ()
    """Presets to list, as shell patterns such as 'deit*' (quote them); by default all."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also write the result as JSON to this file."""
    dialects: tyro.conf.FlagCreatePairsOff[bool] = False
    """List instead the dialects that checkpoints are converted from and to."""
    causes: tyro.conf.FlagCreatePairsOff[bool] = False
    """List instead the causes that `parity diff` can name; with a CAUSE behind it, show that one with
    its example, or with the line to change."""
    faults: tyro.conf.FlagCreatePairsOff[bool] = False
    """List instead the deliberate mistakes that `parity check --fault` and `parity check-steps --fault`
    make in one twin; mistakes in training steps go with the latter only."""


@dataclass(frozen=True)
class ListedPreset:
    """One preset."""

    name: str
    parameters: int
    flops: int
    """FLOPs of one image."""
    image_size: tuple[int, int]
    """Height and width in pixels."""
    in_channels: int
    module: str | None
    """The module of timm; None where the preset is not timm's."""
    tags: tuple[str, ...]
    """Pretrained tags, the default one first."""


def main(argv: list[str], prog: str = "parity list") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(ListModels, argv, prog=prog)

    from parity.measure.shown import write_json

    lists = [name for name in ("dialects", "causes", "faults") if getattr(arguments, name)]
    if lists:
        most = 1 if lists == ["causes"] else 0
        if len(lists) > 1 or len(arguments.patterns) > most or arguments.json:
            raise ConfigError(f"--{lists[0]}: goes alone" + (", or with one CAUSE" if most else ""))
        if arguments.dialects:
            print_dialects()
        elif arguments.causes:
            print_causes("".join(arguments.patterns), f"{prog} --causes")
        else:
            print_faults()
        return 0
    rows = [_row(name) for name in matching(arguments.patterns)]
    _print(rows)
    if arguments.json:
        content = {"version": JSON_VERSION, "presets": [asdict(row) for row in rows]}
        write_json(arguments.json, content)
    return 0


def matching(patterns: Sequence[str]) -> list[str]:
    """Return the names of the presets that match any of the shell patterns, or all names; sorted.

    Raises:
        ConfigError: a pattern that matches nothing.
    """
    from vit_config import PRESETS

    matches: set[str] = set() if patterns else set(PRESETS)
    for pattern in patterns:
        names = [name for name in PRESETS if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise ConfigError(
                f"no preset matches {pattern!r}; the closest name is {_closest(pattern)!r}"
            )
        matches.update(names)
    return sorted(matches)


def _closest(pattern: str) -> str:
    """Return the name most like the pattern; for wildcards, the one with a part most like it."""
    from vit_config import PRESETS

    literal = re.sub(r"\[[^]]*\]|[*?]", "", pattern)

    def likeness(name: str) -> tuple[float, int]:
        width = len(name) if literal == pattern else len(literal)
        starts = range(len(name) - width + 1) if pattern[:1] in ("*", "?", "[") else [0]
        windows = (name[start : start + width] for start in starts)
        pairs = (difflib.SequenceMatcher(None, literal, each) for each in windows)
        return max(((p.ratio(), p.find_longest_match().size) for p in pairs), default=(0.0, 0))

    return max(sorted(PRESETS, reverse=True), key=likeness)


def _row(name: str) -> ListedPreset:
    from vit_config import PRESETS, preset_tags
    from vit_config.presets import from_timm
    from vit_config.presets.costs import costs

    cfg, cost = PRESETS[name], costs(name)
    return ListedPreset(
        name=name,
        parameters=cost.parameters,
        flops=cost.flops,
        image_size=cfg.image_size,
        in_channels=cfg.in_channels,
        module=from_timm.architectures().get(name, {}).get("module"),
        tags=preset_tags(name),
    )


def _print(rows: Sequence[ListedPreset]) -> None:
    from rich.table import Table

    from parity.measure.tables import show_table
    from vit_config.presets import from_timm
    from vit_config.screen import screen

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for name in ("parameters", "GFLOPs", "input"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("module of timm", no_wrap=True)
    table.add_column("tags", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            f"{row.parameters:,}",
            _giga(row.flops),
            "x".join(map(str, (*row.image_size, row.in_channels))),
            row.module or "-",
            str(len(row.tags)) if row.tags else "-",
        )
    console = screen(120)
    show_table(table, console)
    of_timm = sum(row.module is not None for row in rows)
    tags = sum(len(row.tags) for row in rows)
    console.print(
        f"[bold]{_many(len(rows), 'preset')}[/], {of_timm} of timm {from_timm.data()['timm']} with"
        f" {_many(tags, 'pretrained tag')}",
        highlight=False,
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _giga(flops: int) -> str:
    return f"{flops / 1e9:,.2f}" if flops >= 1e8 else f"{flops / 1e9:.5f}"
