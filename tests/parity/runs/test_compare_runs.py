"""Two runs at the same step: how far apart, where, and what cannot be compared."""

import json
import shutil

import numpy as np
import pytest

from parity.cli import main
from parity.measure.invisible import Sight
from parity.runs.compare import compare_runs
from parity.runs.distance import distance, distances
from parity.runs.folder import read_manifest, write_run
from tests.support.moved_runs import CFG, JOB, RECIPE, listing, random_run, write_random
from vit_config.job import Job
from vit_train.folder.manifest import make_manifest


def write(
    folder, framework, change=lambda state: None, step=7, recipe=RECIPE, cfg=CFG, data=(JOB.data, "1")
):
    run = random_run(recipe, step, cfg)
    change(run.state)
    write_run(run, folder, framework, make_manifest(Job(cfg, recipe, data[0]), data[1]))
    return folder


def nudge(state):
    """One tensor of the parameters, one of the average, and a bias of keys."""
    state.params["head.weight"] *= 1 + 1e-9
    state.params["blocks.0.attn.qkv.bias"][CFG.hidden_size + 3] += 0.25
    state.ema["norm.bias"][2] += 1.0


@pytest.fixture
def compare(capsys):
    """``compare(*argv)``: exit status and what is printed, on one line."""

    def run(*argv):
        status = main(["compare-runs", *map(str, argv)])
        out, err = capsys.readouterr()
        if status == 2:
            assert out == ""
            assert err.count("\n") == 1
            assert err.startswith("parity compare-runs: ")
            return status, err
        assert err == ""
        return status, " ".join(out.split())

    return run


def test_the_distances_are_those_of_the_definition(tmp_path):
    a = write(tmp_path / "a", "jax")
    b = write(tmp_path / "b", "torch", nudge)
    stages = []
    comparison = compare_runs(a, b, on_stage=lambda *stage: stages.append(stage))
    assert [sum(work) for _, *work in stages] == [3, 2, 1]
    assert (comparison.step, comparison.frameworks) == (7, ("jax", "torch"))
    state = random_run(RECIPE, 7).state
    seen = {n: v for n, v in state.params.items()}
    D = CFG.hidden_size
    seen["blocks.0.attn.qkv.bias"] = seen["blocks.0.attn.qkv.bias"][np.r_[:D, 2 * D : 3 * D]]
    size = np.linalg.norm(np.concatenate([v.ravel() for v in seen.values()]))
    parts = comparison.parts
    expected = 1e-9 * np.linalg.norm(seen["head.weight"]) / size
    assert parts["parameters"].distance == pytest.approx(expected, rel=1e-6)
    assert parts["parameters"].worst == "head.weight"
    assert parts["parameters"].worst_distance == pytest.approx(1e-9, rel=1e-6)
    assert parts["ema"].worst == "norm.bias"
    assert parts["ema"].worst_distance == pytest.approx(1 / np.linalg.norm(state.ema["norm.bias"]))
    assert parts["exp_avg"].distance == parts["exp_avg_sq"].distance == 0
    assert comparison.unseen == D
    assert comparison.unseen_difference == pytest.approx(0.25)
    assert comparison.beyond(1e-3) == ["ema"]


def test_what_is_no_number_is_infinitely_far():
    state = random_run(RECIPE, 7).state
    sight = Sight(CFG)
    other = random_run(RECIPE, 7).state
    other.params["head.bias"][0] = np.nan
    assert distances(sight, state, other)["parameters"] == float("inf")
    zero = {"head.bias": np.zeros(3)}
    assert distance(sight, zero, zero) == 0
    assert distance(sight, zero, {"head.bias": np.ones(3)}) == float("inf")


def test_the_command(tmp_path, compare):
    a, b = write(tmp_path / "a", "jax"), write(tmp_path / "b", "torch", nudge)
    before = listing(a), listing(b)
    status, said = compare(a, b)
    assert status == 0
    assert "after 7 updates" in said
    assert "(JAX) against" in said
    assert "30 numbers that the loss cannot see" in said
    assert "the largest difference among them is 2.5e-01" in said
    assert "parity check-steps" in said
    assert "EQUAL" not in said
    status, said = compare(a, b, "--limit", "1e-9", "--json", tmp_path / "c.json")
    assert status == 1
    assert said.endswith("DIFFERENT: beyond 1e-09: ema")
    written = json.loads((tmp_path / "c.json").read_text())
    assert written["version"] == 1
    assert str(a).endswith(written["a"]["folder"])  # without this machine's folder of temporary files
    assert written["a"]["framework"] == "jax"
    assert written["parts"]["ema"]["worst"] == "norm.bias"
    assert (written["step"], written["limit"], written["passed"]) == (7, 1e-9, False)
    status, said = compare(b, b, "--limit", "0")
    assert status == 0
    assert said.endswith("EQUAL to 0")
    assert (listing(a), listing(b)) == before


def test_the_newest_step_that_both_have(tmp_path, compare):
    a, b = write(tmp_path / "a", "torch"), write(tmp_path / "b", "torch")
    for folder, step in ((a, 9), (a, 11), (b, 9), (b, 10)):
        more = write(tmp_path / "more", "torch", step=step)
        shutil.copy(more / "checkpoints" / f"{step}.pt", folder / "checkpoints")
        shutil.rmtree(more)
    assert compare_runs(a, b).step == 9
    assert compare_runs(a, b, 7).step == 7
    assert compare(a, b, "--step", 11)[1].endswith("no checkpoint of step 11; there are 7, 9, 10\n")
    c = write(tmp_path / "c", "jax", step=8)
    _, said = compare(a, c)
    assert "a has checkpoints of steps 7, 9, 11" in said
    assert "c of 8: none" in said
    assert said.endswith("none in common; continue one of them by `parity train --stop-after N`\n")


def test_runs_of_two_jobs(tmp_path, compare):
    a = write(tmp_path / "a", "torch")
    other = {
        "recipe.seed = 0 and 1": {"recipe": RECIPE.replace(seed=1)},
        "model.depth = 1 and 2": {"cfg": CFG.replace(depth=2)},
        'data.fingerprint = "1" and "2"': {"data": (JOB.data, "2")},
        'recipe.dtype = "float64" and "float32"': {"recipe": RECIPE.replace(dtype="float32")},
    }
    for number, (words, options) in enumerate(other.items()):
        status, said = compare(a, write(tmp_path / str(number), "torch", **options))
        assert status == 2
        assert f"are runs of different jobs: {words}; only" in said


def test_the_same_data_may_have_another_name(tmp_path):
    a, b = write(tmp_path / "a", "torch"), write(tmp_path / "b", "torch", data=("folder:x/", "1"))
    assert compare_runs(a, b).beyond(0) == []


def test_the_kernel_may_be_another(tmp_path):
    recipe = RECIPE.replace(dtype="float32")
    a = write(tmp_path / "a", "torch", recipe=recipe)
    b = write(tmp_path / "b", "jax", recipe=recipe.replace(kernel="xla"))
    assert read_manifest(a).run_id != read_manifest(b).run_id
    assert compare_runs(a, b).beyond(0) == []


def test_bad_input(tmp_path, compare):
    a = write_random(tmp_path / "a", "torch", RECIPE)
    (tmp_path / "empty").mkdir()
    for argv, words in (
        ([a, tmp_path / "nowhere"], "nowhere: holds no training run"),
        ([tmp_path / "empty", a], "empty: holds no training run"),
        ([a, a, "--limit", "-1"], "--limit -1.0: give a distance"),
        ([a, a, "--limit", "nan"], "--limit nan: give a distance"),
        ([a, a, "--limit", "much"], "--limit"),
        ([a, a, "--json", tmp_path], ": is a folder"),
        ([a], "B"),
    ):
        status, said = compare(*argv)
        assert status == 2
        assert words in said
    path = a / "checkpoints" / "7.pt"
    path.write_bytes(path.read_bytes()[:-50])
    assert "step 7 is damaged: " in compare(a, a)[1]
