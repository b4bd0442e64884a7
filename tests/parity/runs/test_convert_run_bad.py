"""Runs that cannot be moved as asked: one line, exit status 2, and nothing is written."""

import json
import shutil

import numpy as np
import pytest
import torch

import parity.runs.folder as run_folder
from parity.cli import main
from parity.runs.folder import read_manifest, read_run, write_run
from parity.runs.folder_jax import _moments
from tests.support.moved_runs import CFG, JOB, RECIPE, digests, listing, random_run, write_random
from vit_config.job import Job
from vit_jax.step import init_state
from vit_jax.train.checkpoint import Checkpoints, to_named
from vit_torch.train.checkpoint import save_checkpoint
from vit_train.folder.manifest import FILE, Manifest, locked, make_manifest

TO = {"jax": "torch", "torch": "jax"}
SGD = RECIPE.replace(optimizer="sgd")


@pytest.fixture
def refused(capsys, tmp_path):
    """``refused(source, *words)``: the one line with which `parity convert-run` refuses a run."""

    def ask(source, *words, to="torch", flags=(), out=None):
        out = out or tmp_path / "out"
        before = contents()
        status = main(["convert-run", str(source), str(out), "--to", to, *map(str, flags)])
        printed, said = capsys.readouterr()
        assert (status, printed) == (2, "")
        assert said.count("\n") == 1
        assert said.startswith("parity convert-run: ")
        for word in words:
            assert word in said, said
        assert contents() == before
        return said

    def contents():
        listed = listing(tmp_path).items()
        return {name: about for name, about in listed if name != "." and not name.endswith(".lock")}

    return ask


@pytest.fixture
def moved(capsys, tmp_path):
    """``moved(source)``: what the command prints that succeeds, and the folder it writes."""

    def ask(source, *flags, to="torch"):
        out = tmp_path / "out"
        assert main(["convert-run", str(source), str(out), "--to", to, *map(str, flags)]) == 0
        printed, said = capsys.readouterr()
        assert said == ""
        return printed, out

    return ask


def edit_torch(folder, change, step=7):
    """Another content under the same name and seal, as a training loop of one's own might write it."""
    path = folder / "checkpoints" / f"{step}.pt"
    content = torch.load(path, weights_only=True)
    change(content)
    path.unlink()
    save_checkpoint(path.parent, content)


def edit_jax(folder, recipe, keep, step=7):
    """The tensors of a checkpoint by their places in it, some left out."""
    manifest = read_manifest(folder)
    import jax

    with jax.enable_x64(recipe.dtype == "float64"):
        abstract = jax.eval_shape(lambda: init_state(CFG, recipe, 1))
        with Checkpoints(folder / "checkpoints", run_id=manifest.run_id) as saved:
            named = to_named(saved.restore(step, abstract))
        shutil.rmtree(folder / "checkpoints" / str(step))
        with Checkpoints(folder / "checkpoints", run_id=manifest.run_id) as saved:
            saved.save(step, {name: x for name, x in named.items() if keep(name)})
    return _moments(abstract)


def edit_manifest(folder, change):
    path = folder / FILE
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def put(folder, framework, of, step=7):
    """The checkpoint of one folder into another."""
    name = f"{step}.pt" if framework == "torch" else str(step)
    target = folder / "checkpoints" / name
    if framework == "torch":
        shutil.copy(of / "checkpoints" / name, target)
    else:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(of / "checkpoints" / name, target)


def other_model(folder, framework):
    return write_random(folder, framework, RECIPE, cfg=CFG.replace(depth=2))


@pytest.mark.parametrize("framework", TO)
def test_another_architecture(framework, refused, tmp_path):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    other = other_model(tmp_path / "other", framework)
    put(folder, framework, other)
    refused(folder, "checkpoints/7", "belongs to run", "move it back", to=TO[framework])
    # under the name of this run, it is still of another model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "run_id", property(lambda self: "one"))
        for each in (folder, other):
            shutil.rmtree(each)
        write_random(folder, framework, RECIPE)
        put(folder, framework, other_model(other, framework))
        refused(folder, "is of another model", "blocks.1.attn", to=TO[framework])


@pytest.mark.parametrize("framework", TO)
def test_another_optimiser(framework, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(Manifest, "run_id", property(lambda self: "one"))
    folder = write_random(tmp_path / "run", framework, RECIPE)
    put(folder, framework, write_random(tmp_path / "other", framework, SGD))
    words = {
        "jax": ["another model", "count: not in", " more"],
        "torch": ["momentum", "betas", "another optimiser"],
    }
    refused(folder, *words[framework][:1], to=TO[framework])
    for word in words[framework]:
        refused(folder, word, to=TO[framework], flags=["--cold"])


def set_group(index, **numbers):
    return lambda content: content["optimizer"]["param_groups"][index].update(numbers)


def move_to_other_group(content):
    """The last parameter of the first group of torch's into the second."""
    first, second = content["optimizer"]["param_groups"]
    for field in ("params", "param_names"):
        second[field].append(first[field].pop())


def split_group(content):
    groups = content["optimizer"]["param_groups"]
    groups.append({**groups[0], "params": groups[0]["params"][:2]})
    groups[2]["param_names"] = groups[0]["param_names"][:2]
    for field in ("params", "param_names"):
        groups[0][field] = groups[0][field][2:]


def count_less(content):
    content["optimizer"]["state"][3]["step"] -= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_group(0, weight_decay=0.1), ["weight_decay = 0.1", "the recipe 0.05"]),
        (set_group(1, betas=(0.9, 0.95)), ["betas = (0.9, 0.95)", "(0.9, 0.999)"]),
        (set_group(0, decoupled_weight_decay=False), ["decoupled_weight_decay = False", "True"]),
        (set_group(1, amsgrad=True), ["amsgrad = True", "False"]),
        (move_to_other_group, ["weight_decay = 0.0 for head.weight", "the recipe 0.05"]),
        (split_group, ["3 groups of parameters", "makes 2"]),
        (count_less, ["5 times in 7 steps"]),
    ],
)
def test_other_groups(change, words, refused, tmp_path):
    folder = write_random(tmp_path / "run", "torch", RECIPE)
    edit_torch(folder, change)
    refused(folder, "7.pt: the optimiser", *words, to="jax")


def test_the_order_of_groups_is_ones_own(moved, tmp_path):
    """A loop of one's own may well put those that do not decay first."""
    folder = write_random(tmp_path / "run", "torch", RECIPE)
    edit_torch(folder, lambda content: content["optimizer"]["param_groups"].reverse())
    edit_torch(folder, set_group(0, lr=0.1, fused=True))
    moved(folder, to="jax")
    state = read_run(tmp_path / "out").state
    np.testing.assert_array_equal(
        state.moments["exp_avg"]["head.weight"],
        random_run(RECIPE, 7).state.moments["exp_avg"]["head.weight"],
    )


@pytest.mark.parametrize("lost", [("exp_avg_sq",), ("exp_avg", "exp_avg_sq", "step")])
def test_a_missing_moment_of_torch(lost, refused, moved, tmp_path):
    folder = write_random(tmp_path / "run", "torch", RECIPE)

    def lose(content):
        index = content["optimizer"]["param_groups"][0]["params"][0]
        for name in lost:
            del content["optimizer"]["state"][index][name]

    edit_torch(folder, lose)
    refused(
        folder,
        "no moments of patch_embed.proj.weight",
        "would start cold after 7 updates",
        "--cold",
        to="jax",
    )
    printed, out = moved(folder, "--cold", to="jax")
    assert "no moments of patch_embed.proj.weight: cold, from zero, after 7 updates" in printed
    assert_cold(out, "patch_embed.proj.weight")


@pytest.mark.parametrize("lost", [("exp_avg",), ("exp_avg", "exp_avg_sq")])
def test_a_missing_moment_of_jax(lost, refused, moved, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    places = edit_jax(folder, RECIPE, lambda name: True)
    gone = {path for path, each in places.items() if each.name == "head.bias" and each.moment in lost}
    assert len(gone) == len(lost)
    edit_jax(folder, RECIPE, lambda name: name not in gone)
    refused(folder, "no moments of head.bias", "would start cold after 7 updates", "--cold")
    printed, out = moved(folder, "--cold")
    assert "no moments of head.bias: cold, from zero, after 7 updates" in printed
    assert_cold(out, "head.bias")


def assert_cold(folder, lost):
    """Both moments of one parameter are zero; nothing else has changed."""
    run, given = read_run(folder).state, random_run(RECIPE, 7).state
    for moment, arrays in run.moments.items():
        for name, value in arrays.items():
            expected = given.moments[moment][name] * (name != lost)
            np.testing.assert_array_equal(value, expected, err_msg=name)


def test_a_missing_parameter_of_jax_is_no_matter_of_cold(refused, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    edit_jax(
        folder, RECIPE, lambda name: name != "params.head.bias" and not name.endswith("mu.head.bias")
    )
    said = refused(folder, "params.head.bias: not in the checkpoint", flags=["--cold"])
    assert "another model" in said


@pytest.mark.parametrize("framework", TO)
def test_a_recipe_that_was_changed(framework, refused, tmp_path):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    edit_manifest(folder, lambda content: content["recipe"].update(learning_rate=0.5))
    refused(folder, "belongs to run", "this is run", to=TO[framework])


DESCRIPTIONS = {
    "not json": lambda path: path.write_text("{"),
    "not text": lambda path: path.write_bytes(b"\xff\xfe"),
    "a list": lambda path: path.write_text("[1]"),
    "no data": lambda path: path.write_text('{"model": {}, "recipe": {}, "versions": {}}'),
    "old data": lambda path: path.write_text('{"model": {}, "recipe": {}, "versions": {}, "data": "x"}'),
}


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_a_damaged_description(kind, refused, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    DESCRIPTIONS[kind](folder / FILE)
    refused(folder, "run.json: is damaged (")


@pytest.mark.parametrize(("part", "field"), [("model", "widht"), ("recipe", "epocs")])
def test_a_description_of_a_later_version(part, field, refused, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    edit_manifest(folder, lambda content: content[part].update({field: 3}))
    refused(folder, f"run.json, {part}: ", f"has no field '{field}'")


def damage(folder, framework, step):
    path = folder / "checkpoints"
    if framework == "torch":
        path = path / f"{step}.pt"
        path.write_bytes(path.read_bytes()[:-100])
        return
    for each in (path / str(step) / "state").rglob("*"):
        if each.is_file():
            each.write_bytes(each.read_bytes()[:-10])


@pytest.mark.parametrize("framework", TO)
def test_a_damaged_checkpoint(framework, refused, moved, tmp_path):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    later = write_random(tmp_path / "later", framework, RECIPE, step=9)
    put(folder, framework, later, step=9)
    damage(folder, framework, 9)
    refused(folder, "run: step 9 is damaged: ", to=TO[framework], flags=["--step", 9])
    before = listing(folder)
    printed, out = moved(folder, to=TO[framework])
    assert "out: 7 updates done" in printed
    assert "the checkpoint of step 9 is damaged and was skipped: " in printed
    assert listing(folder) == before
    shutil.rmtree(out)
    damage(folder, framework, 7)
    refused(folder, "step 9 is damaged", "step 7 is damaged", "no older one", to=TO[framework])


@pytest.mark.parametrize("framework", TO)
def test_no_such_step(framework, refused, tmp_path):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    refused(folder, "no checkpoint of step 8; there are 7", flags=["--step", 8])
    shutil.rmtree(folder / "checkpoints")
    refused(folder, "run: has no checkpoint; train there first")


def test_nothing_is_written_into_the_run_that_is_read(refused, tmp_path):
    folder = write_random(tmp_path / "run", "torch", RECIPE)
    refused(folder, f"is in {folder}, which is read", out=folder / "sub")


def test_no_run(refused, tmp_path):
    refused(tmp_path / "nowhere", "nowhere: no such file or folder")
    folder = write_random(tmp_path / "run", "torch", RECIPE)
    for inner in ("checkpoints", "checkpoints/7.pt"):
        refused(folder / inner, f"{inner}: is part of a training run; give the run's folder, {folder}")
    (folder / FILE).unlink()
    refused(folder, "run: no run.json in it; give the folder of a training run")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no training state of vit_jax, vit_torch, timm")


def test_checkpoints_of_both_frameworks(refused, tmp_path):
    folder = write_random(tmp_path / "run", "torch", RECIPE)
    put(folder, "jax", write_random(tmp_path / "other", "jax", RECIPE))
    refused(
        folder,
        "has checkpoints of both frameworks, of steps 7 and 7; move one framework's checkpoints away",
    )


def test_what_exists_is_replaced_only_if_told(refused, moved, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    out = write_random(tmp_path / "out", "torch", SGD, step=3)
    refused(folder, "out: already exists; give another path, or --force")
    _, out = moved(folder, "--force")
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["7.pt"]
    assert read_run(out).recipe == RECIPE


def test_force_replaces_runs_only(refused, moved, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("all of it")
    refused(folder, "mine: is not a run, and --force", out=mine, flags=["--force"])
    for out in (folder, folder / "checkpoints" / ".."):
        refused(folder, "is what is read", out=out, flags=["--force"])
    refused(folder, "run, which is read", out=folder.parent, to="torch", flags=["--force"])
    refused(folder, "is a file", out=mine / "thesis.tex", flags=["--force"])
    refused(folder, "no such folder to write out in", out=tmp_path / "no" / "out")
    (tmp_path / "out").mkdir()
    moved(folder, "--force")  # an empty folder is nothing to lose


def test_where_somebody_trains(refused, moved, tmp_path):
    """A run that is being trained can be read, but not replaced."""
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    out = write_random(tmp_path / "out", "torch", SGD)
    half = folder / "checkpoints" / "9.orbax-checkpoint-tmp-0" / "state"
    half.mkdir(parents=True)
    with locked(folder):
        with locked(out):
            refused(folder, "out: another process is training in this folder", flags=["--force"])
        before = listing(folder)
        moved(folder, "--force")
        assert listing(folder) == before


@pytest.mark.parametrize("framework", TO)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_nothing(framework, error, tmp_path, monkeypatch, capsys):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    before = listing(tmp_path)
    usual = run_folder._copy_log

    def interrupted(*args):
        usual(*args)
        raise error

    (folder / "log.jsonl").write_text('{"kind": "start", "step": 0}\n')
    monkeypatch.setattr(run_folder, "_copy_log", interrupted)
    status = main(["convert-run", str(folder), str(tmp_path / "out"), "--to", TO[framework]])
    assert status == (130 if error is KeyboardInterrupt else 2)
    assert capsys.readouterr().err.count("\n") == 1
    assert set(listing(tmp_path)) == set(before) | {"run/log.jsonl"}


@pytest.mark.parametrize("framework", TO)
def test_what_is_written_is_read_again(framework, refused, tmp_path, monkeypatch):
    folder = write_random(tmp_path / "run", framework, RECIPE)
    module = run_folder._module(TO[framework])
    usual = module.write

    def careless(out, run, manifest):
        run.state.params["head.bias"][0] += 1e-15
        usual(out, run, manifest)
        run.state.params["head.bias"][0] = 0.0

    monkeypatch.setattr(module, "write", careless)
    refused(folder, "out: not written as it was read: parameters head.bias", to=TO[framework])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--recipe", "r.json"], "--recipe: the run in"),
        (["--data", "digits", "--steps-per-epoch", "3"], "--data, --steps-per-epoch: the run in"),
        (["--set", "depth=3"], "--set: the run in"),
        (["--license", "mit", "--like", "digits"], "--like, --license: the run in"),
        (["--to", "timm"], "--to timm: a run goes on in jax or torch only; elsewhere continue from the"),
        (["--to", "lightning", "--step", "7"], "out --to timm --step 7"),
        (["--step", "many"], "--step"),
    ],
)
def test_flags_that_do_nothing(flags, words, refused, tmp_path):
    refused(write_random(tmp_path / "run", "jax", RECIPE), words, flags=flags)


def test_parameters_of_another_type(tmp_path):
    run = random_run(RECIPE.replace(dtype="float32"), 7)
    manifest = make_manifest(JOB, "fingerprint")
    wide = RECIPE.replace(dtype="float64")
    odd = type(run)(run.config, wide, run.state, None, run.data, run.fingerprint)
    with pytest.raises(ValueError, match='are float32, but dtype = "float64" trains float64 ones'):
        write_run(odd, tmp_path / "out", "torch", manifest)
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_an_older_version_is_brought_up_to_date(moved, tmp_path):
    """Its description lacks fields that came later; their defaults are what was done then."""
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    manifest = read_manifest(folder)

    def older(content):
        for field in ("momentum", "clip_eps"):
            del content["recipe"][field]
        del content["recipe"]["augment"]["rotate"]
        content["recipe"]["augment"]["shift"] = 0.1
        del content["environment"]

    rotated = RECIPE.replace(augment=RECIPE.augment.replace(rotate=0.0))
    shutil.rmtree(folder)
    with pytest.MonkeyPatch.context() as patch:
        before = json.loads(json.dumps(make_manifest(Job(CFG, rotated, JOB.data), "fingerprint")))
        older(before)
        patch.setattr(run_folder, "move", lambda run, *rest: (run, Manifest(before), []))
        write_run(random_run(rotated, 7), folder, "jax", manifest)
    assert read_manifest(folder)["recipe"].keys() < manifest["recipe"].keys()
    printed, out = moved(folder)
    assert "older than recipe.momentum, recipe.clip_eps, recipe.augment.rotate: written" in printed
    expected = make_manifest(Job(CFG, rotated, JOB.data), "fingerprint")
    assert read_manifest(out).run_id == expected.run_id
    assert digests(out, 7) == digests(write_random(tmp_path / "new", "torch", rotated), 7)


def test_another_format_is_said(moved, tmp_path):
    manifest = Manifest(make_manifest(JOB, "fingerprint"), format=7)
    write_run(random_run(RECIPE, 7), tmp_path / "run", "jax", manifest)
    printed, out = moved(tmp_path / "run")
    assert "the run has format 7, this program writes format 1: only the trainer of format 7" in printed
    assert read_manifest(out)["format"] == 7


def test_a_kernel_of_jax_is_left_behind(moved, tmp_path):
    folder = write_random(tmp_path / "run", "jax", RECIPE.replace(kernel="xla", dtype="float32"))
    printed, out = moved(folder)
    assert 'kernel = "xla" is one of JAX; the run goes on with "reference"' in printed
    assert read_run(out).recipe == RECIPE.replace(dtype="float32")
