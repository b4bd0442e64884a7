"""What files say of themselves in their headers, `parity list` and `parity inspect`."""

import json
import os
import subprocess
import sys

import pytest

import vit_torch
import vit_torch.leaves
import vit_torch.weights
from parity import save
from parity.cli import main
from parity.cli.support.checkpoint_facts import lines
from parity.twins.anatomy import anatomy
from tests.support.tiny import TINY, variant
from vit_config import PRESETS, Preprocess, ViTConfig, WeightsError, preset, read_weights, write_weights

pytestmark = pytest.mark.slow


# The header of a file


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("anatomy") / "tiny.safetensors"
    save(
        path,
        vit_torch.ViT(variant("differential")),
        preprocess=Preprocess(class_names=tuple("abcdefghijk")),
    )
    return path


def test_a_header_and_the_tensors_are_checked(file, tmp_path):
    content = file.read_bytes()
    cases = {
        "the header was changed": content.replace(b'\\"hidden_size\\":30', b'\\"hidden_size\\":31', 1),
        "damaged or truncated": content[:-1],
        "is a zip archive": b"PK" + content[2:8] + b"PK",
    }
    path = tmp_path / "w.safetensors"
    for words, damaged in cases.items():
        path.write_bytes(damaged)
        with pytest.raises(WeightsError, match=words):
            read_weights(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # a bit of the last tensor
    with pytest.raises(WeightsError, match="damaged, the bytes of"):
        read_weights(path)


# The commands


def out_of(capsys, *argv: str, status: int = 0) -> str:
    assert main(argv) == status
    captured = capsys.readouterr()
    assert not captured.err
    return captured.out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["list", "vit_bsae*"], ["'vit_bsae*'", "'vit_base_"]),
        (["list", "digits", "*dinov4*"], ["'*dinov4*'", "dinov3"]),
        (["list", "digit"], ["'digit'", "'digits'"]),
        (["list", "--json", "/nowhere/x.json"], ["/nowhere: no such folder"]),
        (["list", "--nope"], ["--nope"]),
        (["inspect"], ["give a preset or a checkpoint"]),
        (["inspect", "vit_base_patch16_22"], ["did you mean 'vit_base_patch16_224'"]),
        (["inspect", "vit_base_patch16_224.nope"], ["has no tag 'nope'", "augreg_in21k"]),
        (["inspect", "none.safetensors"], ["none.safetensors: no such file"]),
        (
            ["inspect", __file__],
            ["is a Python file; what it builds is test_inspect_command.py:FUNCTION"],
        ),
        (["inspect", "digits", "--depth", "-1"], ["--depth -1"]),
        (["inspect", "digits", "--batch-size", "0"], ["--batch-size 0"]),
        (["inspect", "digits", "--image-size", "8by8"], ["--image-size 8by8", "224x224"]),
        (["inspect", "digits", "--image-size", "0"], ["--image-size 0"]),
        (["inspect", "digits", "--image-size", "9999999"], ["at most 8192"]),
        (["inspect", "digits", "--image-size", "9x9"], ["image_size = (9, 9)", "patch_size = (8, 2)"]),
        (["inspect", "digits", "--json", "/nowhere/x.json"], ["/nowhere: no such folder"]),
    ],
    ids=lambda value: " ".join(value[:3])[-30:],
)
def test_mistakes_are_one_line(argv, words, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err


def test_list(tmp_path, capsys):
    path = tmp_path / "list.json"
    lines = out_of(capsys, "list", "deit_*_224", "digits", "--json", str(path)).splitlines()
    names = [line.split()[0] for line in lines[1:-1]]
    assert names == sorted(names)
    assert "digits" in names
    row = next(line.split() for line in lines if line.startswith("deit_base_distilled_patch16_224"))
    assert row[1:] == ["87,338,192", "35.31", "224x224x3", "deit", "1"]
    assert lines[-1].startswith(f"{len(names)} presets, {len(names) - 1} of timm")
    content = json.loads(path.read_text())
    assert content["version"] == 1
    assert [each["name"] for each in content["presets"]] == names
    assert content["presets"][names.index("digits")] == {
        "name": "digits",
        "parameters": 136138,
        "flops": 1345792,
        "image_size": [8, 8],
        "in_channels": 1,
        "module": None,
        "tags": [],
    }


def test_list_shows_every_preset_whole_and_needs_neither_framework():
    code = (
        "import sys\nfrom parity.cli import main\nassert main(['list']) == 0\n"
        "assert not {'jax', 'torch'} & set(sys.modules)"
    )
    # the environment of Python, not of C, in which readline sets COLUMNS
    own = dict(os.environ)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=own)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == sorted(PRESETS)
    assert lines[-1].startswith(f"{len(PRESETS)} presets")


LAYER = {
    "path", "depth", "type", "input_shape", "output_shape", "parameters", "own_parameters", "own",
    "flops",
}  # fmt: skip


def test_inspect_a_preset(tmp_path, capsys):
    path = tmp_path / "anatomy.json"
    argv = ["inspect", "vit_tiny_patch16_224.augreg_in21k", "--batch-size", "2", "--json", str(path)]
    out = out_of(capsys, *argv)
    out = " ".join(out.split())
    for words in (
        "num_classes=21843",
        "of the tag augreg_in21k",
        "licence apache-2.0",
        "0 - 11 (each of 12)",
        "2x197x192",
        "for 2 images",
    ):
        assert words in out
    assert "patch_size=" not in out  # the default
    assert "Dropout" not in out
    content = json.loads(path.read_text())
    assert set(content) == {
        "version", "subject", "schema", "preprocess", "class_names", "license", "tag", "file",
        "input_shape", "parameters", "float32_bytes", "flops", "flops_per_image", "layers",
    }  # fmt: skip
    assert content["file"] is None
    assert content["tag"] == "augreg_in21k"
    assert content["float32_bytes"] == 4 * content["parameters"]
    assert content["flops"] == 2 * content["flops_per_image"]
    cfg = ViTConfig.from_json(json.dumps(content["schema"]))
    assert cfg == preset("vit_tiny_patch16_224.augreg_in21k")
    assert all(set(layer) == LAYER for layer in content["layers"])
    assert [layer["path"] for layer in content["layers"]] == [part.path for part in anatomy(cfg)]


def test_depth_and_all(capsys):
    def layers(*argv):
        lines = out_of(capsys, "inspect", "digits", *argv).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("layer"))
        return [line.split()[0] for line in lines[start + 1 : -1]]

    assert layers("--depth", "0") == ["model"]
    top = ["model", "cls_token", "pos_embed", "patch_embed", "blocks", "norm", "pool", "head"]
    assert layers("--depth", "1") == top
    assert {"pos_drop", "patch_drop", "0", "1", "2", "3"} < set(layers("--depth", "2", "--all"))
    assert "1" not in layers("--depth", "9")
    everything = layers("--depth", "9", "--all")
    own = 2  # class token and positions
    assert len(everything) == len(anatomy(preset("digits"))) + own


@pytest.mark.parametrize(("depth", "shown"), [(1, "0"), (2, "0 - 1 (each of 2)")])
def test_blocks_that_are_alike_are_one_row(depth, shown):
    parts = anatomy(TINY.replace(depth=depth))
    assert [row.name for row in lines(parts, depth=2, everything=False) if row.name[0] == "0"] == [shown]


def test_another_size_on_the_command_line(capsys):
    out = out_of(capsys, "inspect", "digits", "--image-size", "16x4", "--depth", "0")
    assert "16x4x1" in out
    assert "1x1x16x4" in out
    assert "8x8x1" in out_of(capsys, "inspect", "digits", "--image-size", "8", "--depth", "0")


def test_inspect_a_file(file, tmp_path, capsys):
    path = tmp_path / "anatomy.json"
    out = out_of(capsys, "inspect", str(file), "--depth", "4", "--json", str(path))
    joined = " ".join(out.split())
    assert "safetensors: 61 tensors, float32, 94.1 kB" in joined
    assert "attention differential shapes" in joined
    assert "classes 11: a, b, c, d, e, ..." in joined
    assert "crop_mode=center (from its header)" in joined
    assert "lambda_q1" in out
    content = json.loads(path.read_text())
    assert content["file"]["dialect"] == "parity"
    (drawn,) = content["file"]["anomalies"]  # the model was never trained
    assert drawn.startswith("head.weight: as it was drawn")
    assert content["file"]["tensors"]["cls_token"] == {"shape": [1, 1, 30], "dtype": "float32"}


def test_what_few_files_say_of_pixels_is_shown_where_they_do(tmp_path, capsys):
    path = tmp_path / "bands.safetensors"
    preprocess = Preprocess(pixel_type="uint16", several_labels=True)
    save(path, vit_torch.ViT(TINY), preprocess=preprocess)
    out = " ".join(out_of(capsys, "inspect", str(path), "--depth", "0", "--skip-values").split())
    assert "crop_mode=center, pixel_type=uint16, several_labels=True (from its header)" in out


def test_a_file_that_its_schema_does_not_describe(tmp_path, capsys):
    path = tmp_path / "w.safetensors"
    arrays = vit_torch.weights.to_arrays(vit_torch.ViT(TINY))
    arrays["head.bias"] = arrays["head.bias"][:3]
    del arrays["cls_token"]
    write_weights(path, TINY, arrays)
    assert main(["inspect", str(path)]) == 2
    said = capsys.readouterr().err
    assert "2 mismatches" in said
    assert "cls_token: missing, the model has (1, 1, 30)" in said
