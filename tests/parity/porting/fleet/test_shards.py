"""A manifest worked through by several machines: each part once, and what is missing is named."""

import io
import json

import pytest
from filelock import FileLock
from rich.console import Console

from parity.cli import main
from parity.porting.fleet import FleetManifest, run_manifest
from parity.porting.fleet.ledger import LEDGER
from parity.porting.fleet.shard import Shard, parse_shard
from tests.support.fleet_folder import own_file
from vit_config import ConfigError

COUNT = 5


@pytest.fixture
def jobs(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(COUNT):
        own_file(tmp_path / "in" / f"model-{number}.safetensors", number)
    assert main(["scan", str(tmp_path / "in"), "-o", str(tmp_path / "jobs.json")]) == 0
    return tmp_path / "jobs.json"


def run(path, **options):
    """The exit status and what was printed."""
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    status = run_manifest(path, to="timm", out=path.parent / "out", console=console, **options)
    return status, printed.getvalue()


def rows(path):
    return {json.loads(line)["row"] for line in path.read_text().splitlines()}


def test_parts_are_converted_apart_and_the_whole_afterwards(jobs):
    manifest, out = FleetManifest.load(jobs), jobs.parent / "out"
    parts = [{job.path for job in Shard(index, 2).jobs(manifest)} for index in range(2)]
    assert parts[0] | parts[1] == {job.path for job in manifest.checkpoints}
    assert [len(part) for part in parts] == [3, 2]

    assert run(jobs, shard=Shard(1, 2))[0] == 0
    assert rows(out / "parity-ledger-1-of-2.jsonl") == parts[1]
    # a run of the whole converts what is left, and says what is done, however many parts there were
    status, printed = run(jobs)
    assert (status, "3 done, 2 unchanged" in printed) == (0, True)
    assert rows(out / LEDGER) == parts[0]
    gone = next(
        path for path in out.iterdir() if "model-3" in path.name and not path.name.startswith(".")
    )
    gone.rename(out.parent / "elsewhere")
    assert "1 done, 4 unchanged" in run(jobs, shard=Shard(0, 1))[1]


def test_nobody_converts_what_is_being_written(jobs):
    out = jobs.parent / "out"
    out.mkdir()
    (out / "parity-ledger-0-of-2.jsonl").touch()
    with FileLock(out / ".parity-ledger-0-of-2.jsonl.lock"):
        with pytest.raises(ConfigError, match=r"another run is writing there \(parity-ledger-0-of-2"):
            run(jobs)
        with pytest.raises(ConfigError, match=r"parity-ledger-0-of-2"):
            run(jobs, shard=Shard(0, 2))


@pytest.mark.quick
def test_what_is_no_part_is_one_line():
    assert parse_shard("3/16") == Shard(3, 16)
    for text in ("16/16", "3", "-1/4", "a/b", "0/0"):
        with pytest.raises(ConfigError, match=f"--shard {text}: give its number, from 0, and how many"):
            parse_shard(text)
