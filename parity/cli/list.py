"""``parity list``: list the presets and what they cost, or dialects, causes, deliberate mistakes."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError
from vit_config.terminal import say

JSON_VERSION = 1


@dataclass(frozen=True)
class ListModels:
    """List the presets: parameters, GFLOPs of one image, size of the input, the module of timm that has
    the model, and its number of pretrained tags. `parity inspect NAME` shows one preset.
    """

    patterns: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("[PATTERN ...]")] = ()
    """Presets to list, as shell patterns such as 'deit*' (quote them); by default all."""
    json: Annotated[Path | None, shown_as("FILE")] = None
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
    if arguments.json:
        content = {"version": JSON_VERSION, "presets": [asdict(row) for row in rows]}
        write_json(arguments.json, content)
    _print(rows)
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
    from vit_config.costs import costs
    from vit_config.presets import from_timm

    cfg = PRESETS[name]
    cost = costs(cfg)
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


def print_dialects() -> None:
    """Print every dialect that checkpoints are converted from and to."""
    from parity.porting.dialects import dialects

    rows = (
        (each.name, each.family, each.title, each.container if each.writes else "read only")
        for each in dialects()
    )
    _print_table(rows, ("dialect", "family", "of", "written as"), width=120, names=0)


def print_faults() -> None:
    """Print every deliberate mistake, with the twin or the command that it goes with."""
    from parity.faults import FAULTS
    from parity.faults.step_table import STEP_FAULTS
    from parity.faults.twin import FRAMEWORKS

    twins = [(name, FRAMEWORKS[each.twin], each.summary) for name, each in FAULTS.items()]
    _print_table([*twins, *((name, "check-steps", each.summary) for name, each in STEP_FAULTS.items())])


def print_causes(name: str, prog: str) -> None:
    """Print every cause that `parity diff` can name, or one with its example.

    Args:
        name: of the cause to show, with spaces or hyphens; empty for all.
        prog: the command that lists all, for the message.

    Raises:
        ConfigError: no cause has that name.
    """
    from parity.verifier.causes import CAUSES

    ours, steps = {cause.rule: cause for cause in CAUSES}, step_causes()
    rule = name.replace(" ", "-")
    if not rule:
        _print_table(
            [(rule, each.meaning) for rule, each in ours.items()], ("where two programs part", "")
        )
        say("")
        _print_table(steps.items(), ("where two recordings of training part", ""))
        return
    if rule not in ours | steps:
        near = get_close_matches(rule, [*ours, *steps], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"`{prog}` lists them all"
        raise ConfigError(f"no cause is called {name!r}; {hint}")
    if rule in ours:
        cause = ours[rule]
        say(f"{cause.name}: {cause.meaning}", f"  A  {cause.a}", f"  B  {cause.b}")
    if rule in steps:
        say(f"{rule}, of a recorded training step: {steps[rule]}")


def step_causes() -> dict[str, str]:
    """Return the causes of training steps that differ, each with what to change."""
    from parity.verifier.recordings.steps.names import CAUSES

    return dict(CAUSES.values())


def _print_table(
    rows: Iterable[tuple[str, ...]],
    headings: tuple[str, ...] = (),
    *,
    width: int = 160,
    names: int = 1,
) -> None:
    """Print a table; of its columns the first `names` stay on one line, the others are folded."""
    from rich.markup import escape
    from rich.table import Table

    from parity.measure.tables import show_table
    from vit_config.screen import screen

    cells = [[escape(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings))
    for i in range(len(cells[0])):
        table.add_column(headings[i] if headings else "", no_wrap=i < names, overflow="fold")
    for row in cells:
        table.add_row(*row)
    show_table(table, screen(width, highlight=False))
