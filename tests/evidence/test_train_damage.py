"""A run folder that was damaged is taken up where it is whole, and never silently elsewhere."""

import json
import random
import shutil
from pathlib import Path

import pytest

from evidence.kills import damage as damage_runs
from vit_config import CheckpointError
from vit_train.conduct import CHECKPOINTS
from vit_train.folder.log import FILE, read_log, taken_again


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    damage_runs.make_run(folder := tmp_path_factory.mktemp("run") / "run")
    return folder


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(1, 50))]
)
def test_no_damage_is_silent(run, tmp_path, seed):
    rng = random.Random(seed)
    for _ in range(10):
        _, what, verdict, resumption = damage_runs.attack(run, tmp_path, rng)
        assert verdict != "WRONG", (what, resumption)


def test_every_emptied_checkpoint_is_named_and_the_one_before_it_taken(run, tmp_path):
    """Not left to chance: the names of Orbax's files are drawn, and with them where a seed strikes."""
    shutil.copytree(run, copy := tmp_path / "run")
    for emptied, step in ((9, 6), (6, 3), (3, None)):  # None: refused, for nothing is left
        for path in filter(Path.is_file, (copy / CHECKPOINTS / str(emptied)).rglob("*")):
            path.write_bytes(b"")
        resumption = damage_runs.take_up(copy)
        assert (resumption.step, resumption.same) == (step, True)
        assert any(f"{CHECKPOINTS}/{emptied}" in line for line in resumption.said), resumption.said


@pytest.mark.quick
def test_what_went_through_would_be_noticed():
    judge, resumption = damage_runs.judge, damage_runs.Resumption
    assert judge(resumption(9, False, ["damaged"])) == "WRONG"  # another state
    assert judge(resumption(6, True, [])) == "WRONG"  # an older one, and nobody said so
    assert judge(resumption(0, True, [])) == "WRONG"
    assert judge(resumption(6, True, ["9 is damaged"])) == "named, and an older state, bit for bit"


@pytest.mark.quick
def test_a_log_that_is_ahead_is_said(tmp_path):
    assert taken_again(tmp_path, 0) is None
    lines = [{"kind": "train", "step": step} for step in (3, 6, 9)]
    (tmp_path / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert taken_again(tmp_path, 9) is None
    assert "goes to step 9, and the run goes on from step 6" in str(taken_again(tmp_path, 6))
    assert "from the start, for there is no checkpoint" in str(taken_again(tmp_path, 0))


@pytest.mark.quick
@pytest.mark.parametrize("line", [b'{"k\xe9": 1}', b'{"kind": "train", "step": "3"}', b"{"])
def test_a_damaged_line_of_a_log_is_refused_in_one(tmp_path, line):
    (tmp_path / FILE).write_bytes(b'{"kind": "train", "step": 3}\n' + line + b"\n")
    with pytest.raises(CheckpointError, match=r"log\.jsonl, line 2: not") as caught:
        read_log(tmp_path)
    assert "\n" not in str(caught.value)
