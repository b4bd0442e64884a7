"""``parity scan``: list every checkpoint in a folder, ready to convert."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.advice import here
from parity.cli.support.command_line import parse
from vit_config import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from parity.porting.fleet import FleetJob, Scan


COLOURS = {"ready": "green", "ask": "yellow", "refused": "yellow", "other": "dim", "broken": "red"}


@dataclass(frozen=True)
class ScanFolder:
    """Find every Vision Transformer below a folder: files, and folders of Hugging Face, the Trainer or
    Orbax. Only headers are read, and nothing in a file is executed. Sound checkpoints of other models
    are listed, to be left out. Exit status: 0 if all the rest can be converted, 1 if some are broken,
    contradict themselves or leave something open.
    """

    folder: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help_behavior_hint="")
    ] = ()
    """Folder to search. Hidden files are skipped, links out of it are not followed."""
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="", aliases=("-o",))
    ] = None
    """Write the list to this file, for `parity convert --manifest FILE`. Fill in there what is
    open, under "set"; "like", "dialect", "part", "preprocess", "license" and "skip" may be filled in,
    too."""


def main(argv: list[str], prog: str = "parity scan") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(ScanFolder, argv, prog=prog, written=("out",))

    from parity.porting.fleet import scan
    from vit_config.files.atomic import write_atomically
    from vit_config.screen import screen
    from vit_config.waiting import Waiting

    if len(arguments.folder) != 1:
        raise ConfigError(f"expected one folder, got {len(arguments.folder)}; {prog} --help explains")
    if arguments.out is not None:
        _refuse_other(arguments.out)
    console = screen(120, highlight=False)
    with Waiting("looking for checkpoints") as waiting:
        result = scan(arguments.folder[0], manifest=arguments.out, on_stage=waiting.now)
    if arguments.out is not None:
        write_atomically(arguments.out, (result.manifest.to_json(indent=2) + "\n").encode())
    _print(console, result)
    done = result.manifest.count("ready") + result.manifest.count("other")
    return 0 if done == len(result.manifest.checkpoints) else 1


def _refuse_other(path: Path) -> None:
    """Refuse to replace a file that is no list of checkpoints. ConfigError: it is another one."""
    from vit_config.files.foreign import parse_json, read_text

    told: Any = {"checkpoints": []}
    if path.exists():
        try:
            told = parse_json(read_text(path))
        except (OSError, ValueError, RecursionError):
            told = None
    if not isinstance(told, dict) or "checkpoints" not in told:
        raise ConfigError(f"{path}: already exists and lists no checkpoints; give another path")


def _print(console: Console, result: Scan) -> None:
    from parity.measure.tables import show_table

    jobs = result.manifest.checkpoints
    if jobs:
        show_table(_kinds(jobs), console)
    if unready := [job for job in jobs if job.status != "ready"]:
        console.print()
        show_table(_problems(unready), console)
    walk = result.walk
    counts = ", ".join(
        f"[{colour}]{count} {status}[/]"
        for status, colour in COLOURS.items()
        if (count := result.manifest.count(status))  # pyright: ignore[reportArgumentType]
    )
    console.print(f"[bold]{len(jobs)} checkpoints[/]" + (f": {counts}" if counts else ""))
    console.print(
        f"[dim]left out: {walk.others} other files, {walk.links} links,"
        f" {walk.outputs} folders of earlier conversions[/]"
    )


def _kinds(jobs: Sequence[FleetJob]) -> Table:
    """Return a table of how many checkpoints there are of each dialect and kind of file."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("dialect", "kind of file", ""):
        table.add_column(name)
    for name in ("checkpoints", "parameters", "bytes"):
        table.add_column(name, justify="right")
    kinds = Counter((*_kind(job), job.status) for job in jobs)
    for (dialect, container, status), count in sorted(kinds.items()):
        facts = [
            job.found
            for job in jobs
            if job.found and (*_kind(job), job.status) == (dialect, container, status)
        ]
        table.add_row(
            dialect,
            container,
            f"[{COLOURS[status]}]{status}",
            f"{count:,}",
            f"{sum(each.parameters for each in facts):,}" if facts else "-",
            f"{sum(each.bytes for each in facts):,}" if facts else "-",
        )
    return table


def _kind(job: FleetJob) -> tuple[str, str]:
    if job.found is None:
        return "-", "-"
    return job.found.dialect or "-", job.found.container


def _problems(jobs: Sequence[FleetJob]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("not ready", "", "why"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        text = escape(here(job.said or ""))
        table.add_row(escape(job.path), f"[{COLOURS[job.status]}]{job.status}", text)
    return table
