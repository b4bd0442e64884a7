"""Converts the checkpoints of a manifest, one after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.tables import show_table
from parity.porting.dialects import find_dialects
from parity.porting.fleet.ledger import LEDGER, Ledger, LedgerEntry, open_ledger
from parity.porting.fleet.manifest import FleetManifest
from parity.porting.fleet.names import output_names, suffix_of, sweep
from parity.porting.fleet.work import Conversion, Result, TaskOutcome, convert_one
from vit_config import ConfigError, MissingFileError
from vit_config.files.atomic import resolved
from vit_config.screen import screen
from vit_config.waiting import Stage, nobody

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
COLOURS = {"done": "green", "unchanged": "green", "skipped": "dim", "asked": "yellow", "failed": "red"}


def run_manifest(
    path: str | Path,
    *,
    to: str,
    out: str | Path,
    verify: bool = False,
    force: bool = False,
    console: Console | None = None,
    on_stage: Stage = nobody,
) -> int:
    """Convert every checkpoint of a manifest that is not marked `skip`.

    A ledger in `out` records the conversions; an output that exists and would not change is not written
    again. So calling this again continues a run that was stopped or killed.

    Args:
        path: the manifest, see `parity.porting.fleet.scan`.
        to: a dialect or a family of them.
        out: a folder, created if needed; its parent must exist.
        verify: run source and result on the same images; a difference is a failure.
        force: replace existing outputs; those of an earlier run for the same checkpoint always are.
        on_stage: called with each checkpoint before it is converted.

    Returns:
        The exit status: 0 if all are converted, 1 if some are not, 130 after Ctrl-C.

    Raises:
        ConfigError: the manifest or an argument is not valid.
        MissingFileError: there is no manifest, or a folder is missing.
    """
    path, out, console = Path(path), Path(out), console or screen()
    manifest = FleetManifest.load(path)
    root = manifest.root(path)
    target = _target(to)
    names = output_names(manifest.checkpoints, root, suffix_of(to))
    if force:
        _refuse_sources(out, names, root)
    _make_folder(out)
    start = time.monotonic()
    with open_ledger(out) as ledger:
        _say_how_it_ended(ledger, out, console)
        sweep(out, names)
        tasks = [
            Conversion(
                row=job.path,
                path=root / job.path,
                out=out / names[job.path],
                to=target,
                reading=job.reading,
                changes=job.changes,
                verify=verify,
                replace=force or ledger.wrote(job.path, target, names[job.path]),
                before=ledger.done(job.path, target),
            )
            for job in manifest.checkpoints
            if not job.skip
        ]
        results = {job.path: Result(job.path, "skipped", "") for job in manifest.checkpoints}
        try:
            for number, task in enumerate(tasks, 1):
                on_stage(f"converting {task.row}", 1, len(tasks) - number)
                results[task.row] = result = _convert(task, ledger)
                count = escape(f"[{number}/{len(tasks)}]")
                console.print(f"{count} {_line(result)}", soft_wrap=True, highlight=False)
        except KeyboardInterrupt:
            console.print("interrupted; the same command goes on from here")
            return INTERRUPTED
    _print_summary(console, list(results.values()), seconds=time.monotonic() - start)
    return 0 if all(result.passed for result in results.values()) else 1


def _target(to: str) -> str:
    """Return the canonical name of a dialect that has aliases, or of a family."""
    dialects = find_dialects(to)
    return dialects[0].name if len(dialects) == 1 else dialects[0].family


def _refuse_sources(out: Path, names: Mapping[str, str], root: Path) -> None:
    """Refuse a folder in which an output would replace a checkpoint of the manifest.

    Raises:
        ConfigError: with the first such checkpoint.
    """
    places = {path: resolved(root / path) for path in names}
    kept = {place: path for path, place in places.items()}
    for path, place in places.items():
        kept |= {folder: path for folder in place.parents if folder not in kept}
    folder = resolved(out)
    for path, name in names.items():
        if (other := kept.get(folder / name)) is not None:
            raise ConfigError(
                f"{out}: the output of {path} would be {name}, which is or holds the checkpoint {other};"
                " give another folder"
            )


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file; give the path of a folder to write to")
    if not out.absolute().parent.is_dir():
        raise MissingFileError(f"{out.parent}: no such folder to make {out.name} in; create it")
    out.mkdir(exist_ok=True)


def _say_how_it_ended(ledger: Ledger, out: Path, console: Console) -> None:
    """Print where an earlier run was killed, if one was."""
    if ledger.torn:
        console.print(f"{out / LEDGER}: its last line was cut off; that checkpoint is converted again")
    elif ledger.entries and ledger.entries[-1].status == "started":
        row = escape(ledger.entries[-1].row)
        console.print(
            f"the last run ended while it converted {row}, which is tried again; if that ends each run,"
            ' set "skip" in its row of the manifest',
            soft_wrap=True,
        )


def _convert(task: Conversion, ledger: Ledger) -> Result:
    """Convert a checkpoint, and write its lines to the ledger."""
    outcome = convert_one(task, lambda: ledger.add(_entry(task, "started")))
    if outcome.status != "unchanged":
        ledger.add(_entry(task, outcome.status, outcome))
    return Result(task.row, outcome.status, task.out.name, outcome.seconds, outcome.error)


def _entry(task: Conversion, status: Any, outcome: TaskOutcome | None = None) -> LedgerEntry:
    entry = LedgerEntry(
        row=task.row, target=task.to, options=task.options, status=status, output=task.out.name
    )
    if outcome is None:
        return entry
    return entry.replace(
        source=outcome.source,
        digest=outcome.digest,
        verified=task.verify and outcome.status == "done",
        seconds=outcome.seconds,
        error=outcome.error,
    )


def _line(result: Result) -> str:
    status = f"[{COLOURS[result.status]}]{result.status}[/]"
    end = result.error if result.error is not None else f"-> {result.output} ({result.seconds:.1f} s)"
    return f"{status} {escape(result.row)} {escape(end)}"


def _print_summary(console: Console, results: Sequence[Result], *, seconds: float) -> None:
    """Print a line for each checkpoint that is not converted, and how many there are of each status."""
    if wrong := [result for result in results if not result.passed]:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("not converted", "", "why"):
            table.add_column(name, overflow="fold")
        for each in wrong:
            status = f"[{COLOURS[each.status]}]{each.status}"
            table.add_row(escape(each.row), status, escape(each.error or ""))
        show_table(table, console)
    counts = Counter(result.status for result in results)
    text = ", ".join(f"[{COLOURS[name]}]{counts[name]} {name}[/]" for name in COLOURS if counts[name])
    console.print(
        f"[bold]{len(results)} checkpoints[/]: {text or 'none'}; {seconds:.1f} s", highlight=False
    )
