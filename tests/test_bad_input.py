"""What a user can do wrong: one clear line each, exit status 2, nothing half-written."""

import json
import os
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
import torch
from peers import redrawn, run_jax, run_torch
from tiny import TINY

import vit_jax.evaluate
import vit_torch.evaluate
from parity.cli import main
from vit_config import (
    ConfigError,
    InputError,
    MissingFileError,
    Preprocess,
    Recipe,
    ViTConfig,
    preset,
    write_weights,
)
from vit_config.presets.own import OWN

RUN = {"jax": run_jax, "torch": run_torch}
EVALUATE = {"jax": vit_jax.evaluate, "torch": vit_torch.evaluate}
SMALL = TINY.replace(depth=1)


def one_line(error: BaseException, *words: str) -> str:
    """The message is one line and holds every one of `words`."""
    message = str(error)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


# The schema

CONTRADICTIONS = {
    "patches that do not divide the image": (
        {"patch_size": (4, 5)},
        ["image_size = (21, 15)", "patch_size = (4, 5)", "nearest valid sizes are 20x15 and 24x15"],
    ),
    "a patch larger than the image": (
        {"patch_size": (28, 5)},
        ["image_size = (21, 15)", "patch_size = (28, 5)", "28x15"],
    ),
    "heads that do not divide the width": (
        {"num_heads": 7},
        ["num_heads = 7", "hidden_size = 30", "make the width a multiple"],
    ),
    "pool without a class token": (
        {"class_token": False},
        ['pool = "class"', "class_token = false", 'set pool = "mean"'],
    ),
    "norm of patches that a convolution never cuts": (
        {"patch_input_norm": True},
        ["patch_input_norm = true", 'patch_embed = "conv"', '"linear_hwc"'],
    ),
    "bias of a missing projection": (
        {"attention_out_proj": False},
        ["attention_out_bias = true", "attention_out_proj = false"],
    ),
    "softmax of a missing head": (
        {"head_activation": "softmax", "num_classes": 0},
        ['head_activation = "softmax"', "num_classes = 0"],
    ),
    "skipping the only block": (
        {"stochastic_depth": 0.1, "depth": 1},
        ["stochastic_depth = 0.1", "depth = 1"],
    ),
    "rows of a missing table": (
        {"pos_embed": "none", "pos_embed_prefix": "all"},
        ['pos_embed_prefix = "all"', 'pos_embed = "none"'],
    ),
    "resizing a missing table": (
        {"pos_embed": "none", "pos_embed_prefix": "none", "pos_embed_resize": "leading_rows"},
        ['pos_embed_resize = "leading_rows"', 'pos_embed = "none"'],
    ),
    "a grid with rows for prefix tokens": (
        {"pos_embed": "sincos2d", "pos_embed_prefix": "all", "hidden_size": 20},
        ['pos_embed_prefix = "all"', 'pos_embed = "sincos2d"'],
    ),
    "leading rows of a grid": (
        {
            "pos_embed": "sincos2d_simple",
            "pos_embed_prefix": "none",
            "pos_embed_resize": "leading_rows",
            "hidden_size": 20,
        },
        ['pos_embed_resize = "leading_rows"', 'pos_embed = "sincos2d_simple"'],
    ),
    "a width that sines of a grid do not fill": (
        {"pos_embed": "sincos2d", "pos_embed_prefix": "none"},
        ['pos_embed = "sincos2d"', "hidden_size = 30", "divisible by 4"],
    ),
    "a width that sines do not fill": (
        {"pos_embed": "sincos1d", "hidden_size": 15, "num_heads": 5},
        ['pos_embed = "sincos1d"', "hidden_size = 15", "even"],
    ),
    "heads of a width that differential ones cannot have": (
        {"attention": "differential", "attention_head_dim": 8},
        ['attention = "differential"', "attention_head_dim = 8", "attention_head_dim = null"],
    ),
    "joined heads that no projection brings back to the width": (
        {"attention_head_dim": 7, "attention_out_proj": False, "attention_out_bias": False},
        ["attention_out_proj = false", "hidden_size = 30", "attention_head_dim = 7", "make 35"],
    ),
    "a layer before two heads": (
        {"head_hidden": 17, "distill_token": True},
        ["head_hidden = 17", "distill_token = true"],
    ),
    "a missing head without a bias": (
        {"head_bias": False, "num_classes": 0},
        ["head_bias = false", "num_classes = 0"],
    ),
    "a row for the class token only, of many": (
        {"pos_embed_prefix": "class"},
        ['pos_embed_prefix = "class"', "class_token = true", "register_tokens = 0"],
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_names_both_fields_and_values(case):
    changes, words = CONTRADICTIONS[case]
    with pytest.raises(ConfigError) as caught:
        TINY.replace(**changes)
    one_line(caught.value, *words)
    assert isinstance(caught.value, ValueError)


def test_all_contradictions_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        TINY.replace(num_heads=7, class_token=False, patch_size=(4, 5))
    one_line(caught.value, "num_heads = 7", "class_token = false", "patch_size = (4, 5)")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_sise": 30}, ["ViTConfig has no field 'hidden_sise'", "did you mean 'hidden_size'?"]),
        ({"zzz": 1}, ["no field 'zzz'", "the fields are image_size, patch_size"]),
        ({"num_heads": "4"}, ["ViTConfig.num_heads = '4'", "valid integer"]),
        ({"num_heads": 4.5}, ["ViTConfig.num_heads = 4.5", "integer"]),
        ({"num_heads": 0}, ["ViTConfig.num_heads = 0", "greater than 0"]),
        ({"num_classes": -1}, ["ViTConfig.num_classes = -1", "greater than or equal to 0"]),
        ({"class_token": 1}, ["ViTConfig.class_token = 1", "boolean"]),
        ({"image_size": True}, ["ViTConfig.image_size", "True", "tuple"]),
        ({"image_size": [21, 15, 3]}, ["ViTConfig.image_size", "(21, 15, 3)"]),
        ({"act": "gelu_new"}, ["ViTConfig.act = 'gelu_new'", "'gelu_tanh'"]),
        ({"dropout_embed": 1.0}, ["ViTConfig.dropout_embed = 1.0", "less than 1"]),
        ({"norm_eps": float("inf")}, ["ViTConfig.norm_eps = inf", "finite"]),
        ({"norm_eps": float("nan")}, ["ViTConfig.norm_eps = nan"]),
        ({"depth": "x", "mlp_dim": None}, ["ViTConfig.depth = 'x'", "ViTConfig.mlp_dim = None"]),
    ],
)
def test_an_unknown_or_mistyped_field_is_named_with_its_value(fields, words):
    with pytest.raises(ConfigError) as caught:
        ViTConfig(**fields)
    one_line(caught.value, *words)


@pytest.mark.parametrize(
    ("schema", "fields", "words"),
    [
        (Recipe, {"epochs": 3, "warmup_epochs": 3.0}, ["warmup_epochs = 3.0", "epochs = 3"]),
        (Recipe, {"final_learning_rate": 0.1}, ["final_learning_rate = 0.1", "learning_rate = 0.001"]),
        (
            Recipe,
            {"schedule": "constant", "final_learning_rate": 1e-4},
            ["final_learning_rate = 0.0001", 'schedule = "constant"'],
        ),
        (Recipe, {"batchsize": 8}, ["Recipe has no field 'batchsize'", "did you mean 'batch_size'?"]),
        (Recipe, {"learning_rate": float("inf")}, ["Recipe.learning_rate = inf", "finite"]),
        (Preprocess, {"mean": (0.5,)}, ["mean has 1 channels", "std has 3"]),
        (Preprocess, {"std": (0.5, 0.0, 0.5)}, ["std = (0.5, 0.0, 0.5)", "greater than 0"]),
        (Preprocess, {"mean": (0.5, float("nan"), 0.5)}, ["Preprocess.mean", "nan", "finite"]),
    ],
)
def test_the_other_schemas_say_it_as_clearly(schema, fields, words):
    with pytest.raises(ConfigError) as caught:
        schema(**fields)
    one_line(caught.value, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"num_head": 5}', ["no field 'num_head'", "did you mean 'num_heads'?"]),
        (b'{"num_heads": "5"}', ["ViTConfig.num_heads = '5'"]),
        (b'{"hidden_size": 30, "num_heads": 7}', ["num_heads = 7", "hidden_size = 30"]),
        (b'{"num_heads": 5,\n}', ["not valid JSON at line 2"]),
        (b"[1, 2]", ["expected a JSON object, found list"]),
        (b"", ["not valid JSON at line 1"]),
        (b'{"norm_eps": Infinity}', ["norm_eps", "inf"]),
        (pickle.dumps({"num_heads": 5}), ["not valid JSON"]),
    ],
    ids=["unknown", "mistyped", "contradiction", "comma", "list", "empty", "infinity", "pickle"],
)
def test_a_config_file_is_named_with_what_is_wrong_in_it(tmp_path, content, words):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ViTConfig.load(path)
    one_line(caught.value, str(path), *words)


def test_a_missing_config_file_is_named(tmp_path):
    with pytest.raises(MissingFileError) as caught:
        ViTConfig.load(tmp_path / "nowhere.json")
    one_line(caught.value, f"{tmp_path}/nowhere.json: no such file", "give the path of a JSON config")
    assert isinstance(caught.value, FileNotFoundError)


def test_an_unknown_preset_gets_a_suggestion():
    with pytest.raises(ConfigError) as caught:
        preset("vit_base_patch16")
    one_line(caught.value, "'vit_base_patch16'", "did you mean 'vit_base_patch16_224'?")
    with pytest.raises(ConfigError) as caught:
        preset("resnet")
    one_line(caught.value, "'resnet'", *OWN)


# Images and labels


@pytest.mark.parametrize("twin", RUN)
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 21, 20, 3), ["the image is 21x20", "image_size = 21x15", "resize the image"]),
        ((2, 15, 21, 3), ["the image is 15x21", "image_size = 21x15"]),
        ((2, 21, 15, 1), ["1 channels", "in_channels = 3"]),
        ((2, 14, 10, 3), ["the image is 14x10", "image_size = 21x15"]),
    ],
)
def test_an_image_of_another_size_is_refused_at_call_time(twin, shape, words):
    with pytest.raises(InputError) as caught:
        RUN[twin](SMALL, redrawn(SMALL), np.zeros(shape))
    one_line(caught.value, *words)


@pytest.mark.parametrize("size", [(0, 15), (21, 0), (3, 3)])
def test_an_image_smaller_than_a_patch_is_refused(size):
    with pytest.raises(InputError) as caught:
        SMALL.replace(dynamic_image_size=True).check_image(*size, 3)
    one_line(caught.value, f"the image is {size[0]}x{size[1]}", "patch_size = (7, 5)")


def test_a_single_image_is_not_a_batch():
    arrays = redrawn(SMALL)
    model = vit_torch.from_arrays(SMALL, arrays)
    with pytest.raises(InputError, match=r"images have shape \(3, 21, 15\), expected \(B, C, H, W\)"):
        model(torch.zeros(3, 21, 15))
    with jax.enable_x64(True):
        twin = vit_jax.from_arrays(SMALL, arrays)
    with pytest.raises(InputError, match=r"images have shape \(21, 15, 3\), expected \(B, H, W, C\)"):
        twin(np.zeros((21, 15, 3)))


def test_pixels_are_bytes_with_the_channels_that_are_normalised():
    with pytest.raises(InputError, match="images are float32, expected uint8"):
        Preprocess().normalise(np.zeros((2, 21, 15, 3), np.float32))
    with pytest.raises(InputError, match="images have 1 channels, the preprocessing has 3"):
        Preprocess().normalise(np.zeros((2, 21, 15, 1), np.uint8))


@pytest.fixture
def weights(tmp_path):
    """A good weights file."""
    path = tmp_path / "weights.safetensors"
    write_weights(path, SMALL, redrawn(SMALL), Preprocess())
    return path


@pytest.mark.parametrize("twin", EVALUATE)
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": [0, 11]}, ["labels go from 0 to 11", "num_classes = 11 (0 to 10)"]),
        ({"labels": [-1, 3]}, ["labels go from -1 to 3", "num_classes = 11"]),
        ({"labels": [2**40, 3]}, [str(2**40), "int64"]),
        ({"labels": [0.5, 3.7]}, ["3.7", "float64", "integers"]),
        ({"labels": [1]}, ["images (2, 21, 15, 3) uint8, labels (1,)"]),
        ({"images": np.zeros((2, 15, 21, 3), np.uint8)}, ["15x21", "image_size = 21x15"]),
        ({"images": np.zeros((2, 21, 15, 3))}, ["float64", "uint8"]),
        ({"pictures": [1]}, ["images"]),
    ],
)
def test_scoring_refuses_labels_and_images_that_do_not_fit(twin, arrays, words, weights, capsys):
    good = {"images": np.zeros((2, 21, 15, 3), np.uint8), "labels": np.array([0, 10])}
    path = weights.parent / "images.npz"
    np.savez(path, **(arrays if "pictures" in arrays else {**good, **arrays}))
    assert EVALUATE[twin].main([str(weights), str(path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    for word in words:
        assert word in err


# The command


@pytest.fixture
def check(capsys, monkeypatch):
    """``check(*argv)``: the one line of a `parity check` that refuses its input before any work."""

    def work(*_):
        raise AssertionError("the models were built")

    def run(*argv: object) -> str:
        try:
            status = main(["check", *map(str, argv)])
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        assert status == 2
        assert out == ""
        assert err.count("\n") == 1, err
        assert err.startswith("parity check: ")
        return err

    monkeypatch.setattr("parity.run_jax.JaxTwin", work)
    return run


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["digitz"], ["'digitz'", "did you mean 'digits'?"]),
        (["resnet"], ["'resnet'", "the presets are", "vit_paper"]),
        (["digits", "--fault", "tanhgelu"], ["'tanhgelu'", "did you mean 'tanh_gelu'?"]),
        (["digits", "--fault", "cosmic_rays"], ["'cosmic_rays'", "the faults are", "wrong_pool"]),
        (["digits", "--batch-size", "0"], ["--batch-size 0", "at least 1"]),
        (["digits", "--batch-size", "-3"], ["--batch-size -3", "at least 1"]),
        (["digits", "--seed", "-1"], ["--seed -1"]),
        (["digits", "--token-offset", "nan", "--dtype", "float64"], ["--token-offset nan"]),
        (["digits", "--token-offset", "5"], ["token_offset = 5", "('float64', 'float32')"]),
        (
            ["mnist_exercise", "--token-offset", "5", "--dtype", "float64"],
            ["token_offset = 5", 'pos_embed = "sincos1d"'],
        ),
        (["digits", "--dtype"], ["--dtype", "float64"]),
        (["digits", "--dtype", "float31"], ["float31", "--dtype", "float64", "bfloat16"]),
        (["digits", "--dtypo", "float32"], ["--dtypo", "--dtype"]),
        (["digits", "--batch-size", "many"], ["--batch-size", "many"]),
        (["digits", "--fault"], ["--fault"]),
        ([], ["a preset or a checkpoint"]),
        (["--all", "digits"], ["no architecture of timm is called digits"]),
        (["--all", "--token-offset", "5", "--dtype", "float64"], ["--all"]),
        (["nowhere.safetensors"], ["nowhere.safetensors: no such file"]),
        (["some/folder/nowhere"], ["some/folder/nowhere: no such file"]),
        (["."], [".: none of model.safetensors"]),
        (["digits", "--json", "nowhere/report.json"], ["nowhere: no such folder"]),
        (["digits", "--svg", "nowhere/report.svg"], ["nowhere: no such folder"]),
        (["digits", "--json", "."], [".: is a folder"]),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else None,
)
def test_check_refuses(argv, words, check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = check(*argv)
    for word in words:
        assert word in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("subject", "fault", "field"),
    [
        ("digits", "swapped_layer_scales", "layer_scale"),
        ("mnist_exercise", "patch_order", "patch_embed"),
        ("mnist_exercise", "missing_final_norm", "final_norm"),
        ("mnist_exercise", "detached_positions", "pos_embed"),
        ("mnist_exercise", "transposed_projection", "attention_out_proj"),
    ],
)
def test_a_fault_that_a_model_cannot_have_is_not_injected(subject, fault, field, check):
    line = check(subject, "--fault", fault, "--dtype", "float64")
    assert fault in line
    assert field in line


def damaged_files() -> dict:
    """name -> (how the file is made from a good one, what must be said)."""
    return {
        "truncated": (lambda content: content[: len(content) // 2], ["truncated", "bytes"]),
        "empty": (lambda content: b"", ["its first bytes (none)"]),
        "pickle": (lambda content: pickle.dumps({"a": 1}), ["is a Python pickle"]),
        "zip": (lambda content: b"PK\x03\x04" + bytes(40), ["damaged or truncated zip archive"]),
        "flipped": (lambda content: content[:-1] + bytes([content[-1] ^ 1]), ["damaged", "head.bias"]),
        "json": (lambda content: b'{"num_heads": 5}', ["are of no kind of checkpoint"]),
    }


@pytest.mark.parametrize("damage", damaged_files())
def test_check_refuses_a_damaged_file(damage, weights, check):
    change, words = damaged_files()[damage]
    weights.write_bytes(change(weights.read_bytes()))
    line = check(weights, "--json", weights.parent / "report.json")
    assert str(weights) in line
    for word in words:
        assert word in line
    assert os.listdir(weights.parent) == [weights.name]


def without(arrays, name):
    return {key: value for key, value in arrays.items() if key != name}


WRONG_TENSORS = {
    "missing": (lambda a: without(a, "norm.bias"), ["norm.bias: missing", "(30,)"]),
    "unexpected": (lambda a: {**a, "extra": np.ones(3)}, ["extra: unexpected", "(3,)"]),
    "shape": (
        lambda a: {**a, "head.weight": a["head.weight"].T},
        ["head.weight", "(30, 11)", "(11, 30)"],
    ),
    "mixed types": (
        lambda a: {**a, "head.weight": a["head.weight"].astype(np.float16)},
        ["head.weight: type float16", "float64"],
    ),
    "integers": (
        lambda a: {name: array.astype(np.int32) for name, array in a.items()},
        ["int32", "floating-point"],
    ),
    "nothing": (lambda a: {}, ["norm.bias: missing"]),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_check_refuses_a_file_that_is_not_the_model_it_describes(case, tmp_path, check):
    change, words = WRONG_TENSORS[case]
    path = tmp_path / "weights.safetensors"
    write_weights(path, SMALL, change(redrawn(SMALL)))
    line = check(path, "--dtype", "float64")
    assert str(path) in line
    for word in words:
        assert word in line


def test_positions_of_a_file_are_not_redrawn(weights, check):
    assert "--token-offset" in check(weights, "--token-offset", "3")


def test_an_unknown_command_lists_the_commands(capsys):
    assert main(["chek"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("parity: no command 'chek'; the commands are check")
    assert err.count("\n") == 1


def test_a_process_ends_with_status_2_and_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "parity", "check", str(tmp_path / "nowhere.safetensors")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"parity check: {tmp_path}/nowhere.safetensors: no such file")
    assert done.stderr.count("\n") == 1


def test_a_report_that_exists_survives_bad_input(tmp_path, check):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"kept": True}))
    check("digits", "--json", report, "--fault", "nothing")
    assert json.loads(report.read_text()) == {"kept": True}
    assert os.listdir(tmp_path) == ["report.json"]
