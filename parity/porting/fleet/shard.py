"""Shards of a manifest, for several machines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from parity.porting.fleet.ledger import LEDGER
from parity.porting.fleet.manifest import FleetJob, FleetManifest
from vit_config import ConfigError


class Shard(NamedTuple):
    """One of `count` parts of a manifest."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of the shard from 0, as SLURM and Kubernetes count."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def ledger(self) -> str:
        """Name of the shard's own ledger."""
        return LEDGER.replace(".jsonl", f"-{self.index}-of-{self.count}.jsonl")

    def jobs(self, manifest: FleetManifest) -> list[FleetJob]:
        """Return the shard's checkpoints: dealt out in order of size, so that shards are alike."""
        by_size = sorted(manifest.checkpoints, key=lambda job: (-_bytes(job), job.path))
        return by_size[self.index :: self.count]


def parse_shard(text: str) -> Shard:
    """Parse ``3/16`` as the fourth of sixteen shards.

    Raises:
        ConfigError: the text is not of this form.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ConfigError(f"--shard {text}: give its number, from 0, and how many there are, as 0/16")
    return Shard(int(match[1]), int(match[2]))


def shard_ledgers(folder: Path) -> list[Path]:
    """Find the ledgers of shards in a folder."""
    return sorted(folder.glob(LEDGER.replace(".jsonl", "-*-of-*.jsonl")))


def _bytes(job: FleetJob) -> int:
    return job.found.bytes if job.found else 0
