"""Converts the checkpoints of a manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from parity.porting.dialects import called
from parity.porting.fleet.ledger import LEDGER, Ledger, LedgerEntry, open_ledger
from parity.porting.fleet.manifest import FleetManifest
from parity.porting.fleet.names import output_names, suffix_of, sweep
from parity.porting.fleet.pool import Message, run_tasks
from parity.porting.fleet.screen import FleetProgress, print_summary
from parity.porting.fleet.shard import Shard, shard_ledgers
from parity.porting.fleet.work import STARTED, Conversion, Result, TaskOutcome, convert_one
from vit_config import ConfigError, MissingFileError
from vit_config.files.atomic import resolved
from vit_config.screen import screen

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def run_manifest(
    path: str | Path,
    *,
    to: str,
    out: str | Path,
    jobs: int = 1,
    verify: bool = False,
    license_allow: Sequence[str] | None = None,
    force: bool = False,
    shard: Shard | None = None,
    console: Console | None = None,
) -> int:
    """Convert every checkpoint of a manifest that is not marked `skip`.

    They are converted in other processes, so that a crash fails one checkpoint only. A ledger in `out`
    records the conversions; an output that exists and would not change is not written again. So calling
    this again continues a run that was stopped or killed.

    Args:
        path: the manifest, see `parity.porting.fleet.scan`.
        to: a dialect or a family of them.
        out: a folder, created if needed; its parent must exist.
        jobs: number of processes that convert at once.
        verify: run source and result on the same images; a difference is a failure.
        license_allow: licences that are allowed; None allows all.
        force: replace existing outputs; those of an earlier run for the same checkpoint always are.
        shard: convert this part only, with its own ledger; several may run at once in the same `out`.
            A run without it reads their ledgers, and converts what they left.

    Returns:
        The exit status: 0 if all are converted, 1 if some are not, 130 after Ctrl-C.

    Raises:
        ConfigError: the manifest or an argument is not valid.
        MissingFileError: there is no manifest, or a folder is missing.
    """
    path, out, console = Path(path), Path(out), console or screen()
    manifest = FleetManifest.load(path)
    root = manifest.root(path)
    if jobs < 1:
        raise ConfigError(f"jobs = {jobs}: must be at least 1")
    target = _target(to)
    names = output_names([job.path for job in manifest.checkpoints], root, suffix_of(to))
    if force:
        _refuse_sources(out, names, root)
    _make_folder(out)
    start = time.monotonic()
    jobs_here = manifest.checkpoints if shard is None else shard.jobs(manifest)
    names = {job.path: names[job.path] for job in jobs_here}
    own = LEDGER if shard is None else shard.ledger
    others = [
        path for path in (*shard_ledgers(out), out / LEDGER) if path.name != own and path.is_file()
    ]
    with open_ledger(out, own, others, alone=shard is None) as ledger:
        if ledger.torn:
            console.print(f"{out / own}: its last line was cut off; that checkpoint is converted again")
        sweep(out, names)
        tasks = [
            Conversion(
                row=job.path,
                path=root / job.path,
                out=out / names[job.path],
                to=target,
                reading=job.reading,
                changes=job.changes,
                license_allow=None if license_allow is None else tuple(license_allow),
                verify=verify,
                replace=force or ledger.wrote(job.path, target, names[job.path]),
                before=ledger.done(job.path, target),
            )
            for job in jobs_here
            if not job.skip
        ]
        sizes = {job.path: job.found.bytes if job.found else 0 for job in jobs_here}
        results = {job.path: Result(job.path, "skipped", "") for job in jobs_here}
        try:
            with FleetProgress(console, {task.row: sizes[task.row] for task in tasks}) as rows:
                for result in _convert_all(tasks, jobs, ledger, rows):
                    results[result.row] = result
                    rows.ended(result)
        except KeyboardInterrupt:
            console.print("interrupted; the same command goes on from here")
            return INTERRUPTED
        finally:
            sweep(out, names)  # what processes that died left behind
    print_summary(console, list(results.values()), seconds=time.monotonic() - start)
    return 0 if all(result.passed for result in results.values()) else 1


def _target(to: str) -> str:
    """Return the canonical name of a dialect that has aliases, or of a family."""
    dialects = called(to)
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


def _convert_all(
    tasks: Sequence[Conversion], jobs: int, ledger: Ledger, rows: FleetProgress
) -> Iterator[Result]:
    """Yield the result of each task, after its line was written to the ledger."""
    starts: dict[str, float] = {}
    with closing(run_tasks(tasks, convert_one, jobs)) as events:
        for event in events:
            task = event.task
            if isinstance(event, Message):
                if event.message == STARTED:
                    starts[task.row] = time.monotonic()
                    ledger.add(_entry(task, "started"))
                else:
                    rows.moved(task.row, event.message)
                continue
            seconds = round(time.monotonic() - starts.get(task.row, time.monotonic()), 3)
            outcome = event.result or TaskOutcome("failed", seconds, error=event.died)
            if outcome.status != "unchanged":
                ledger.add(_entry(task, outcome.status, outcome))
            yield Result(task.row, outcome.status, task.out.name, outcome.seconds, outcome.error)


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
