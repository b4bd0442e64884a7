"""Shards of a manifest for several machines, and the joining of their results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from parity.porting.fleet.junit import Result
from parity.porting.fleet.ledger import LEDGER, Entry, Ledger
from parity.porting.fleet.manifest import Job, Manifest
from parity.porting.fleet.work import Task
from vit_config import ConfigError


class Shard(NamedTuple):
    """One of `count` parts of a manifest."""

    index: int
    """Number of the shard from 0, as SLURM and Kubernetes count."""
    count: int

    @property
    def ledger(self) -> str:
        """Name of the shard's own ledger."""
        return LEDGER.replace(".jsonl", f"-{self.index}-of-{self.count}.jsonl")

    def jobs(self, manifest: Manifest) -> list[Job]:
        """Return the shard's checkpoints: dealt out in order of size, so that shards are alike."""
        by_size = sorted(manifest.checkpoints, key=lambda job: (-_bytes(job), job.path))
        return by_size[self.index :: self.count]


def parse_shard(text: str) -> Shard:
    """Parse ``3/16`` as the fourth of sixteen shards.

    Raises:
        ConfigError: the text is not of this form.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ConfigError(f"--shard {text}: give its number, from 0, and how many there are, as 0/16")
    return Shard(int(found[1]), int(found[2]))


def shard_ledgers(folder: Path) -> dict[Path, Shard]:
    """Find the ledgers of shards in a folder."""
    form = re.compile(re.escape(LEDGER).replace(r"\.jsonl", r"-(\d+)-of-(\d+)\.jsonl"))
    found = {path: form.fullmatch(path.name) for path in sorted(folder.glob("*.jsonl"))}
    return {path: Shard(int(each[1]), int(each[2])) for path, each in found.items() if each}


def joined(
    manifest: Manifest, tasks: Sequence[Task], ledger: Ledger, shards: Iterable[Shard]
) -> list[Result]:
    """Return the result of each checkpoint by the ledgers of all shards.

    Args:
        tasks: the tasks of the whole manifest.
        ledger: the joined ledger.
        shards: the shards that have a ledger.
    """
    counts = {shard.count for shard in shards}
    owners = {
        job.path: f"{shard.index}/{shard.count}"
        for count in counts
        for shard in (Shard(index, count) for index in range(count))
        for job in shard.jobs(manifest)
    }
    results = {job.path: Result(job.path, "skipped", "") for job in manifest.checkpoints}
    for task in tasks:
        error = _missing(task, ledger)
        if error is None:
            seconds = task.before.seconds if task.before else None
            results[task.row] = Result(task.row, "done", task.out.name, seconds or 0.0)
        else:
            of = f" (shard {owners[task.row]})" if task.row in owners else ""
            results[task.row] = Result(task.row, "failed", task.out.name, 0.0, f"{error}{of}")
    return list(results.values())


def _missing(task: Task, ledger: Ledger) -> str | None:
    """Say why a checkpoint is not converted as the manifest states now; None if it is."""
    last = next((each for each in ledger.entries[::-1] if _is_of(each, task)), None)
    if last is None:
        return "nobody has begun it"
    done = task.before
    if done is None:
        began = "its conversion was begun, and never ended"
        return began if last.status == "started" else last.error or last.status
    if done.options != task.options:
        return "the manifest or the command has changed since it was converted"
    if task.verify and not done.verified:
        return "it was converted without --verify"
    return None if task.out.exists() else f"{task.out.name} is gone"


def _is_of(entry: Entry, task: Task) -> bool:
    return (entry.row, entry.target) == (task.row, task.to)


def _bytes(job: Job) -> int:
    return job.found.bytes if job.found else 0
