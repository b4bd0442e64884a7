"""The flags of the training command: their defaults, what they override, and config files."""

import json
import re
from pathlib import Path

import pytest

from parity.cli import run
from parity.cli.support.train_options import parse
from vit_config import PRESETS, Augment, Recipe, preset
from vit_config.fine_tuning import TrainingSet, fine_tuning
from vit_config.job import default_job
from vit_train.folder.saving import SaveEvery


def ask(*argv):
    return parse([str(word) for word in argv], prog="train.py")


def test_the_defaults():
    request = ask()
    assert request.job == default_job("digits")
    assert request.run_dir == Path("runs/digits").absolute()
    assert (request.flags.parallel, request.flags.mesh) == ("jit", "data=-1")
    assert (request.flags.framework, request.flags.stop_after) == ("jax", None)
    assert request.job.recipe != Recipe()


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert ask().data_dir == tmp_path
    monkeypatch.delenv("TFDS_DATA_DIR")
    assert ask().data_dir == Path.home() / "tensorflow_datasets"
    assert ask("--data-dir", "here").data_dir == Path("here").absolute()


def test_flags_override_the_preset():
    request = ask(
        *("--preset", "mnist_exercise", "--data", "tfds:mnist", "--model.num-heads", "4"),
        *("--model.patch-size", "7", "--recipe.augment.shift", "0.1", "--dtype", "bfloat16"),
        *("--recipe.clip-norm", "1.5", "--model.no-qkv-bias", "--parallel", "pmap"),
    )
    model = preset("mnist_exercise").replace(num_heads=4, patch_size=7, qkv_bias=False)
    assert request.job.model == model
    assert request.job.recipe.augment.shift == 0.1
    assert request.job.recipe.dtype == "bfloat16"
    assert request.job.recipe.clip_norm == 1.5
    assert request.flags.parallel == "pmap"


def test_sizes_are_one_integer_or_two():
    assert ask("--model.patch-size", 4).job.model.patch_size == (4, 4)
    assert ask("--model.patch-size", 4, 2).job.model.patch_size == (4, 2)


def test_a_shorter_run_has_a_warm_up_that_fits():
    short = ask("--recipe.epochs", "4")
    assert short.job.recipe.warmup_epochs == 0.2  # 10 of 200
    assert [note.partition(",")[0] for note in short.notes] == ["warm-up: 0.2 of 4 epochs"]
    assert ask("--recipe.epochs=20").job.recipe.warmup_epochs == 10.0
    share = ask("--recipe.warmup-fraction", "0.5", "--recipe.warmup-epochs", "0").job.recipe
    assert share.warmup == 100.0


def test_every_flag_wins_over_the_recipe_for_fine_tuning():
    start = ("--preset", "vit_tiny_patch16_224", "--init", "w.safetensors", "--data", "folder:nowhere")
    asked = ask(*start, "--recipe.batch-size", 32, "--recipe.augment.crop", "none", "--recipe.epochs=3")
    usual = fine_tuning(TrainingSet(), 32)
    assert usual.learning_rate == fine_tuning(TrainingSet()).learning_rate / 2
    assert asked.job.recipe == usual.replace(epochs=3, augment=Augment(flip=True))
    assert [line.split()[:3] for line in asked.notes if "(given)" in line] == [
        ["epochs", "3", "(given)"],
        ["batch", "32", "(given)"],
        ["crops", "none", "(given)"],
    ]
    assert ask(*start, "--recipe.warmup-epochs", 2, "--recipe.learning-rate", 1).job.recipe == (
        fine_tuning(TrainingSet()).replace(warmup_fraction=0.0, warmup_epochs=2.0, learning_rate=1.0)
    )


def test_checkpoints_come_every_ten_minutes_unless_told_otherwise():
    assert ask().options["save_every"] == SaveEvery(600.0)
    assert ask("--save-every", "1h,50steps").options["save_every"] == SaveEvery(3600.0, 50)


def test_what_differs_from_the_preset_names_the_folder():
    assert (
        ask("--recipe.seed", 1, "--model.patch-size", 4, 2).run_dir.name
        == "digits-patch_size=4x2-seed=1"
    )
    long = ask(
        *[
            w
            for f in ("embed", "attention", "mlp-inner", "mlp-outer")
            for w in (f"--model.dropout-{f}", 0.1)
        ]
    )
    assert len(long.run_dir.name) < 30
    assert ask("--run-dir", "elsewhere").run_dir == Path("elsewhere").absolute()


def test_each_framework_has_a_folder_of_its_own():
    assert ask("--framework", "torch", "--recipe.seed", 1).run_dir.name == "digits-torch-seed=1"
    assert ask("--stop-after", 0).run_dir.name == "digits"  # the run goes on there


def test_every_field_has_a_flag(capsys):
    with pytest.raises(SystemExit) as end:
        ask("--help")
    assert end.value.code == 0
    text = capsys.readouterr().out
    for prefix, schema in (("model", PRESETS["digits"]), ("recipe", Recipe())):
        for field in schema.fields():
            assert f"--{prefix}.{field.replace('_', '-')}" in text
    assert "Passes over the training set." in text
    assert "must divide hidden_size" in text


def test_help_shows_the_defaults_of_the_preset(capsys):
    with pytest.raises(SystemExit):
        ask("--preset", "vit_base_patch16_224", "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"--model.hidden-size INT\W+Width D of every token. \(default: 768\)", text)


def write_config(folder, **content):
    path = folder / "job.json"
    path.write_text(json.dumps(content))
    return path


def test_a_config_file_gives_the_defaults(tmp_path):
    path = write_config(
        tmp_path,
        preset="digits",
        data="tfds:other",
        model={"patch_size": 4, "depth": 2},
        recipe={"epochs": 3, "warmup_epochs": 1.0, "augment": {"shift": 0.2}},
    )
    request = ask("--config", path, "--model.depth", 5)
    assert request.job.model == preset("digits").replace(patch_size=4, depth=5)
    assert request.job.data == "tfds:other"
    usual = default_job("digits").recipe
    assert request.job.recipe == usual.replace(
        epochs=3, warmup_epochs=1.0, augment=usual.augment.replace(shift=0.2)
    )
    assert request.run_dir.name == "job-depth=5"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"presett": "digits"}, "JobFile has no field 'presett'; did you mean 'preset'?"),
        ({"model": {"num_head": 2}}, "ViTConfig has no field 'num_head'; did you mean 'num_heads'?"),
        ({"model": {"num_heads": "4"}}, "ViTConfig.num_heads = '4': input should be a valid integer"),
        ({"recipe": {"augment": {"shft": 1}}}, "Augment has no field 'shft'; did you mean 'shift'?"),
        ({"recipe": {"augment": 3}}, "Recipe.augment = 3: "),
        ({"preset": "digit"}, "unknown preset 'digit'; did you mean 'digits'?"),
        ({"model": [1]}, "JobFile.model = [1]: input should be a valid dictionary"),
    ],
)
def test_a_bad_config_file_is_one_line(capsys, tmp_path, content, message):
    path = write_config(tmp_path, **content)
    assert run("train", ["--config", str(path), "--run-dir", str(tmp_path / "run")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"parity train: {path}: ")
    assert message in captured.err
    assert not (tmp_path / "run").exists()
