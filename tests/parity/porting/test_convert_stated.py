"""What the user states of a checkpoint's schema: of what it leaves open, or against what it says."""

import json
import shutil

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.hf_models import CLASSES, MLP, SQUARE, build, save
from tests.support.tiny import TINY
from vit_config import ConfigError, WeightsError, preset, write_weights

SIDES = TINY.replace(image_size=(32, 72), patch_size=(8, 8), norm_eps=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """transformers' own folder, whose config.json says 5 heads and an epsilon of 1e-12."""
    model = build("ViTForImageClassification", "ViTConfig", **SQUARE, **MLP, **CLASSES)
    return save(model, tmp_path_factory.mktemp("stated") / "vit")


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("num_heads=3", ["num_heads = 5 (config.json), but 3 (--set)", "--override num_heads=3"]),
        ("norm_eps=1e-6", ["norm_eps = 1e-12 (config.json), but 1e-06 (--set)"]),
        ("act=gelu_tanh", ["act = gelu (config.json), but gelu_tanh (--set)"]),
        ("image_size=72x32", ["image_size = 15x15 (config.json), but 72x32 (--set)"]),
        ("dropout_attention=0.5", ["dropout_attention = 0.0 (config.json), but 0.5 (--set)"]),
    ],
)
def test_what_a_file_states_is_not_set(stated, expected, folder, tmp_path, capsys):
    argv = ("convert", folder, tmp_path / "out", "--to", "parity", "--set", stated)
    refused(capsys, tmp_path, expected, *argv)


def test_all_that_contradicts_a_file_is_said_at_once(folder):
    with pytest.raises(ConfigError) as of_set:
        read_checkpoint(folder, given={"num_heads": 3, "act": "relu"})
    assert "5 (config.json), but 3 (--set)" in str(of_set.value)
    assert str(of_set.value).endswith("to overrule the file, give --override num_heads=3 act=relu")
    with pytest.raises(WeightsError) as of_preset:
        read_checkpoint(folder, like="vit_tiny_patch16_224")
    for said in (
        "30 (shapes), but 192",
        "5x5 (shapes), but 16x16",
        "by --like, or none; to go with the",
    ):
        assert said in str(of_preset.value)


def test_saying_the_same_is_fine(folder):
    stated = {"num_heads": 5, "image_size": 15, "norm_eps": 1e-12, "rope": None}
    assert read_checkpoint(folder, given=stated).config == read_checkpoint(folder).config


def test_an_override_is_written_into_the_provenance(folder, tmp_path, capsys):
    said = "num_heads = 3 by --override, where config.json says 5"
    flags = ("--to", "parity", "--override", "num_heads=3", "norm_eps=1e-12")
    status, out, err = run(capsys, "convert", folder, tmp_path / "a.safetensors", *flags)
    assert status == 0, err
    assert said in out
    checkpoint = read_checkpoint(tmp_path / "a.safetensors")
    assert (checkpoint.config.num_heads, checkpoint.origins["num_heads"]) == (3, "its header")
    assert [note for note in checkpoint.hops[-1].done if "override" in note] == [said]
    status, out, _ = run(capsys, "inspect", folder, "--override", "num_heads=3", "--depth", "0")
    assert "overridden" in out


def test_the_advice_for_a_table_of_another_size_is_followed(folder, tmp_path):
    wrong = shutil.copytree(folder, tmp_path / "wrong")
    config = json.loads((wrong / "config.json").read_text())
    (wrong / "config.json").write_text(json.dumps({**config, "image_size": 30}))
    said = r"image_size = 30x30 \(config.json\).*; give --override image_size=15x15$"
    with pytest.raises(WeightsError, match=said):
        read_checkpoint(wrong)
    again = read_checkpoint(wrong, override={"image_size": [15, 15]})
    assert again.config == read_checkpoint(folder).config


def test_tensors_are_not_overridden(folder, tmp_path):
    with pytest.raises(
        WeightsError, match=r"depth = 3 \(shapes\), but 2 \(--override\); tensors cannot"
    ):
        read_checkpoint(folder, override={"depth": 2})
    with pytest.raises(ConfigError, match="num_heads: both given and overridden; keep one"):
        read_checkpoint(folder, given={"num_heads": 5}, override={"num_heads": 3})


def test_a_header_is_a_statement_too(tmp_path):
    path = tmp_path / "own.safetensors"
    write_weights(path, SIDES, arrays_of(SIDES))
    with pytest.raises(ConfigError, match=r"num_heads = 5 \(its header\), but 3 \(--set\)"):
        read_checkpoint(path, given={"num_heads": 3})
    checkpoint = read_checkpoint(path, override={"num_heads": 3})
    assert checkpoint.config.num_heads == 3
    assert checkpoint.notes == ("num_heads = 3 by --override, where its header says 5",)


def test_a_preset_gives_way_to_what_is_set(tmp_path):
    """Both are the user's own words."""
    state = {name: torch.from_numpy(each) for name, each in arrays_of(SIDES).items()}
    path = tmp_path / "timm.pth"
    torch.save(state, path)
    shape = {"num_heads": 5, "norm_eps": 1e-5, "image_size": (32, 72), "rope": None, "block": "pre_norm"}
    checkpoint = read_checkpoint(
        path, given={**shape, "act": "gelu", "pool": "class", "pool_prefix": False}
    )
    with pytest.raises(WeightsError, match=r"but .* \(preset digits\)"):
        read_checkpoint(path, like="digits", given=shape)
    assert checkpoint.config.norm_eps == 1e-5


def test_sizes_are_set_as_inspect_prints_them(tmp_path, capsys):
    state = {name: torch.from_numpy(each) for name, each in arrays_of(SIDES).items()}
    torch.save(state, tmp_path / "timm.pth")
    rest = ("num_heads=5", "norm_eps=1e-6", "act=gelu", "pool=class", "block=pre_norm")
    argv = ("inspect", tmp_path / "timm.pth", "--depth", "0", "--set", *rest)
    status, out, err = run(capsys, *argv, "image_size=32x72", "patch_size=8x8")
    assert status == 0, err
    assert "32x72" in out
    json_file = tmp_path / "facts.json"
    assert run(capsys, *argv, "image_size=[32,72]", "--json", json_file)[0] == 0
    assert json.loads(json_file.read_text())["schema"]["image_size"] == [32, 72]
    status, _, err = run(capsys, *argv, "image_size=99999x72")
    assert (status, "--set image_size 99999x72: a side has at most" in err) == (2, True)


def test_a_square_that_the_preset_has_too_is_no_news(tmp_path):
    cfg = preset("test_vit")
    torch.save({n: torch.from_numpy(each) for n, each in arrays_of(cfg).items()}, tmp_path / "timm.pth")
    checkpoint = read_checkpoint(tmp_path / "timm.pth", like="test_vit")
    assert (checkpoint.config, checkpoint.notes) == (cfg, ())
    assert checkpoint.origins["image_size"] == "shapes, taking the grid to be square, as preset test_vit"
