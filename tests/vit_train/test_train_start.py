"""Runs that begin with weights of before: every tensor accounted for, in both frameworks."""

import re

import jax
import numpy as np
import pytest
from safetensors.numpy import save

import parity
from parity.cli import run
from parity.cli.support import after_training
from parity.cli.support.train_options import parse
from parity.porting.models.start import read_start, read_teacher
from parity.porting.reading.checkpoint import read_checkpoint
from parity.runs.folder import read_run
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.share import rarely
from tests.support.tiny import TINY
from vit_config import ConfigError, InputError, Preprocess, Recipe, WeightsError, write_weights
from vit_config.errors import UnstatedError
from vit_config.job import Job
from vit_config.numerics.resize import resize_weights
from vit_config.parameters import parameters
from vit_jax.train.run import train as train_in_jax
from vit_torch.train.run import train as train_in_torch
from vit_train.data.images import fit_image
from vit_train.folder.log import read_log
from vit_train.folder.start import frozen_names
from vit_train.task import make_task

SOURCE = TINY.replace(depth=2)
CFG = SOURCE.replace(image_size=(14, 20), num_classes=3)
RECIPE = Recipe.from_json("""{
    "epochs": 1, "batch_size": 16, "learning_rate": 0.003, "weight_decay": 0.05, "log_every_steps": 1,
    "clip_norm": 0.1, "ema": 0.9, "dtype": "float64"
}""")
DATA = "tfds:tiny_rectangles"
PIXELS = Preprocess(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), interpolation="bilinear")


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {
        name: (0.1 * rng.standard_normal(each.shape)).astype(np.float32)
        for name, each in parameters(SOURCE).items()
    }


@pytest.fixture(scope="module")
def weights(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "w.safetensors"
    write_weights(path, SOURCE, arrays, PIXELS)
    return path


def train(framework, job, data_dir, run_dir, start, stop_after=None):
    options = {"data_dir": data_dir, "run_dir": run_dir, "stop_after": stop_after, "start": start}
    if framework == "torch":
        return train_in_torch(job, **options)
    return train_in_jax(job, devices=tuple(jax.local_devices()[:1]), **options)


def test_every_tensor_is_used_or_drawn_anew(weights, arrays):
    start = read_start(str(weights), CFG)
    fitted = resize_weights(SOURCE, arrays, image_size=(14, 20))[1]
    assert set(parameters(CFG)) - set(start.arrays) == {"head.weight", "head.bias"}
    for name, value in start.arrays.items():
        np.testing.assert_array_equal(value, fitted[name], err_msg=name)
    assert not np.array_equal(start.arrays["pos_embed"], arrays["pos_embed"])
    first, *rest = start.account
    count = len(parameters(CFG))
    assert first.endswith(f": {count - 2} of the model's {count} tensors are used")
    assert rest == [
        "image size 21x15 to 14x20, positions fitted by bicubic_antialias",
        "drawn anew: head.weight (3, 30), head.bias (3,)",
        "left out: head.weight (11, 30), head.bias (11,)",
    ]
    assert start.preprocess == PIXELS


def test_a_bare_state_dict_takes_from_the_model_what_it_leaves_open(weights, arrays, tmp_path):
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes(save(arrays, {"format": "pt"}))
    start, known = read_start(str(bare), CFG), read_start(str(weights), CFG)
    for name, value in known.arrays.items():
        np.testing.assert_array_equal(start.arrays[name], value, err_msg=name)
    assert start.preprocess is None
    said = next(each for each in start.account if each.startswith("not stated in the file"))
    assert "num_heads = 5" in said
    with pytest.raises(WeightsError, match=r"mlp_dim = 44 in the file, 45 in the model"):
        read_start(str(bare), CFG.replace(mlp_dim=45))
    advised = pytest.raises(UnstatedError, match=r"--init .* does not state num_heads, .*; add --preset")
    with advised:
        parse(["--init", str(bare)], prog="train.py")
    with pytest.raises(UnstatedError, match=r"--teacher .* num_heads, .*; `.* OUT --to parity --set"):
        read_teacher(str(bare))


def test_a_head_that_fits_is_kept_unless_asked(weights, arrays):
    start = read_start(str(weights), SOURCE)
    np.testing.assert_array_equal(start.arrays["head.weight"], arrays["head.weight"])
    assert len(start.account) == 1
    new = read_start(str(weights), SOURCE, new_head=True)
    assert set(start.arrays) - set(new.arrays) == {"head.weight", "head.bias"}
    assert new.identity != start.identity


def test_another_pooling_and_other_drop_rates_start_from_the_same_blocks(weights):
    cfg = CFG.replace(pool="mean", final_norm="post_pool", stochastic_depth=0.2, dropout_head=0.1)
    start = read_start(str(weights), cfg)
    assert {"fc_norm.weight", "fc_norm.bias"} & set(start.arrays) == set()
    assert any(line.startswith("drawn anew: fc_norm.weight (30,)") for line in start.account)
    assert any(line.startswith("left out: norm.weight (30,)") for line in start.account)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"mlp_dim": 45},
            ["mlp_dim = 44 in the file, 45 in", "fc1.weight is (44, 30) in the file, (45, "],
        ),
        (
            {"act": "gelu_tanh"},
            ["act = gelu in the file, gelu_tanh in the model", "; give the file's values as --model."],
        ),
        ({"in_channels": 4}, ["OUT --to parity --channels 4 --by RULE` changes it"]),
        ({"depth": 3}, ["depth = 2 in the file, 3", "blocks.2.norm1.weight (30,) is not in the file"]),
        ({"qkv_bias": False}, ["blocks.0.attn.qkv.bias (90,) is not in the model"]),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(weights, change, said):
    with pytest.raises(WeightsError, match=re.escape(f"--init {weights}: does not fit")) as caught:
        read_start(str(weights), CFG.replace(**change))
    for part in said:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sizes_of_its_own_become_the_size_of_the_run(arrays, data_dir, tmp_path):
    """A model of patches is trained, and exported, for images of one size; another one is not scored."""
    path, size = tmp_path / "naflex.safetensors", SOURCE.image_size
    sizes = PIXELS.replace(max_patches=12)
    write_weights(path, SOURCE.replace(dynamic_image_size=True), arrays, sizes)
    cfg = SOURCE.replace(num_classes=3)
    task = make_task(Job(cfg, RECIPE, DATA, init=str(path)), data_dir, start=read_start(str(path), cfg))
    assert (task.preprocess.max_patches, task.preprocess.mean) == (None, PIXELS.mean)
    assert any(
        "max_patches = 12); this run, and what it exports, has all at 21x15" in n for n in task.notes
    )
    with pytest.raises(InputError, match="max_patches = 12 gives each image a size of its own"):
        fit_image(np.zeros((*size, 3), np.uint8), size, sizes)


def test_patterns_are_paths():
    names = list(parameters(CFG))
    blocks = {name for name in names if name.startswith("blocks.0.")}
    assert frozen_names(names, ["blocks.0"]) == blocks
    assert frozen_names(names, ["!head"]) == set(names) - {"head.weight", "head.bias"}
    assert frozen_names(names, ["blocks.*.attn", "cls_token"]) == {
        *(name for name in names if ".attn." in name),
        "cls_token",
    }
    with pytest.raises(ConfigError, match=r"--freeze block: matches no parameter; the parameters are "):
        frozen_names(names, ["block"])
    with pytest.raises(ConfigError, match="nothing is left to train"):
        frozen_names(names, ["*"])


@pytest.fixture(scope="module")
def frozen_runs(weights, data_dir, tmp_path_factory):
    """The same fine-tuning of a head and a norm in both frameworks, and its folders."""
    folder = tmp_path_factory.mktemp("frozen")
    job = Job(
        CFG, RECIPE, DATA, init=str(weights), freeze=("patch_embed", "pos_embed", "cls_token", "blocks")
    )
    start = read_start(str(weights), CFG)
    states = {}
    for framework in ("jax", "torch"):
        train(framework, job, data_dir, folder / framework, start)
        states[framework] = read_run(folder / framework, cold=True).state
    return start, states, folder


def test_what_is_frozen_stays_bit_for_bit(frozen_runs):
    start, states, _ = frozen_runs
    for state in states.values():
        for name, value in start.arrays.items():
            same = np.array_equal(state.params[name], value.astype(np.float64))
            assert same == (not name.startswith("norm.")), name
            assert np.array_equal(state.ema[name], state.params[name]) == same
        for moments in state.moments.values():
            assert not moments["blocks.0.attn.qkv.weight"].any()
            assert moments["head.weight"].any()


def test_the_log_says_the_norm_of_what_is_trained(frozen_runs):
    """Clipping to a norm of everything would take other steps: the twins agree on the trained part."""
    _, _, folder = frozen_runs
    norms = [
        [event["grad_norm"] for event in read_log(folder / name) if event["kind"] == "train"]
        for name in ("jax", "torch")
    ]
    assert len(norms[0]) == 2
    assert norms[0][0] > RECIPE.clip_norm
    # the heads are drawn by each framework, so only orders of magnitude can be compared
    np.testing.assert_allclose(norms[0], norms[1], rtol=1.0)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_run_begins_with_the_weights_and_is_known_by_them(weights, data_dir, tmp_path, framework):
    whole = SOURCE.replace(num_classes=3)
    path = tmp_path / "three.safetensors"
    rng = np.random.default_rng(1)
    three = {n: rng.standard_normal(x.shape).astype(np.float32) for n, x in parameters(whole).items()}
    write_weights(path, whole, three, PIXELS)
    job = Job(whole, RECIPE, DATA, init=str(path))
    start = read_start(str(path), whole)
    trained = train(framework, job, data_dir, tmp_path / "run", start, stop_after=0)
    state = read_run(tmp_path / "run").state
    for name, value in three.items():
        np.testing.assert_array_equal(state.params[name], value.astype(np.float64), err_msg=name)
        np.testing.assert_array_equal(state.ema[name], value.astype(np.float64), err_msg=name)
    assert trained.preprocess == PIXELS.replace(class_names=("red", "green", "blue"))
    three["norm.weight"] += 1
    write_weights(path, whole, three, PIXELS)
    with pytest.raises(ValueError, match=r"holds another run: init\.digest = "):
        train(framework, job, data_dir, tmp_path / "run", read_start(str(path), whole), stop_after=1)


@pytest.mark.parametrize("dialect", rarely(("timm", "hf-vit", "big-vision"), ("hf-vit",)))
def test_the_command_fine_tunes_from_any_dialect_and_resumes(
    capsys, monkeypatch, arrays, weights, data_dir, tmp_path, dialect
):
    monkeypatch.setattr(after_training, "score_and_compare", lambda *_: 0)  # is tested elsewhere
    out = tmp_path / ("source.npz" if dialect == "big-vision" else "source")
    if dialect == "big-vision":  # the only GELU it has
        weights = tmp_path / "tanh.safetensors"
        write_weights(weights, SOURCE.replace(act="gelu_tanh"), arrays, PIXELS)
    parity.convert(weights, to=dialect, out=out)
    command = [
        *("--framework", "torch", "--init", str(out), "--data", DATA, "--data-dir", str(data_dir)),
        *("--model.stochastic-depth", "0.1", "--recipe.epochs", "2"),
        *("--recipe.batch-size", "16", "--recipe.warmup-epochs", "0", "--freeze", "patch_embed"),
    ]
    assert run("train", [*command, "--run-dir", str(tmp_path / "run"), "--stop-after", "1"]) == 0
    printed = capsys.readouterr().out
    assert "drawn anew: head.weight (3, 30), head.bias (3,)" in printed
    assert "model.num_classes = 3, the classes of the set" in printed
    assert "frozen: 2 tensors; " in printed
    assert "frozen as drawn" not in printed
    for name in ("run", "whole"):
        assert run("train", [*command, "--run-dir", str(tmp_path / name)]) == 0
    resumed, whole = (
        parity.load(tmp_path / name / "weights.safetensors", framework="torch")
        for name in ("run", "whole")
    )
    for name, value in whole.model.state_dict().items():
        assert resumed.model.state_dict()[name].equal(value), name
    assert whole.preprocess.mean == PIXELS.mean
    again = tmp_path / ("again.npz" if dialect == "big-vision" else "again")
    parity.convert(tmp_path / "run" / "weights.safetensors", to=dialect, out=again)
    assert read_checkpoint(again).dialect.name == read_checkpoint(out).dialect.name
    config = ["--config", str(tmp_path / "run" / "run.json"), "--run-dir", str(tmp_path / "run")]
    capsys.readouterr()
    assert run("train", [*config, "--framework", "torch", "--data-dir", str(data_dir)]) == 0
    assert "all 4 steps were done" in capsys.readouterr().out
