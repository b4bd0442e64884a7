"""What a run was begun with: kept in its folder, and compared when it goes on."""

import json

import pytest

from tests.support.moved_runs import JOB
from vit_config import CheckpointError
from vit_train.folder.manifest import Manifest, claim, differences, make_manifest


def test_a_folder_of_unknown_checkpoints_is_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    manifest = make_manifest(JOB, "0")
    with pytest.raises(CheckpointError, match=r"has checkpoints but no run.json"):
        claim(tmp_path, manifest)
    (tmp_path / "run.json").write_text('{"model":')
    with pytest.raises(CheckpointError, match=r"run.json: is damaged"):
        claim(tmp_path, manifest)


def test_another_version_of_what_computes_is_said(tmp_path):
    manifest = make_manifest(JOB, "0")
    assert claim(tmp_path, manifest) == []
    assert claim(tmp_path, manifest) == []
    later = Manifest(manifest, environment={**manifest.environment, "jax": "99.0"})
    assert later.run_id == manifest.run_id
    there = manifest.environment["jax"]
    assert claim(tmp_path, later) == [f"continuing with jax 99.0, the run began with {there}"]
    assert json.loads((tmp_path / "run.json").read_text()) == manifest


def test_a_run_keeps_its_format_not_the_version_of_this_program(tmp_path, monkeypatch):
    manifest = make_manifest(JOB, "0")
    assert claim(tmp_path, manifest) == []
    with monkeypatch.context() as patch:
        patch.setattr("vit_train.folder.manifest.version", lambda name: "99.0")
        assert make_manifest(JOB, "0").run_id == manifest.run_id
    (tmp_path / "checkpoints" / "1").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"holds another run: format = 1 there, 2 here"):
        claim(tmp_path, Manifest(manifest, format=2))


def test_of_long_texts_the_end_at_which_they_differ_is_shown_whole():
    there, here = ({"name": "a" * 20 + end * 7} for end in "bc")
    assert differences(there, here) == ['name = "...aaaaaaaabbbbbbb" there, "...aaaaaaaaccccccc" here']


def test_a_run_that_ended_before_its_first_checkpoint_gives_way(tmp_path):
    manifest = make_manifest(JOB, "0")
    assert claim(tmp_path, Manifest(manifest, format=2)) == []
    assert claim(tmp_path, manifest) == []
    assert json.loads((tmp_path / "run.json").read_text())["format"] == 1


def test_other_devices_are_said(tmp_path):
    assert claim(tmp_path, make_manifest(JOB, "0", devices=["cpu"] * 4)) == []
    fewer = make_manifest(JOB, "0", devices=["cpu"])
    assert claim(tmp_path, fewer) == ["continuing with jax on 1 cpu, the run began with 4 cpu"]
    assert claim(tmp_path, make_manifest(JOB, "0", "torch", devices=["cuda"])) == []
