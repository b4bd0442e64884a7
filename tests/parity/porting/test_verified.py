"""`parity convert --verify`: what is run, what cannot be, what becomes of a file that differs."""

import json

import numpy as np
import pytest
import torch

import parity
from parity.cli import main
from parity.porting.reading.libraries import installed as libraries
from parity.porting.reading.libraries.installed import Library
from tests.parity.porting.test_convert_command import SQUARE as OWN
from tests.parity.porting.test_convert_command import arrays_of
from tests.support.hf_models import MLP, SQUARE, build, save
from vit_config import WeightsError, read_weights, write_weights

VISION = {**SQUARE, **MLP}
TEXT = {
    "hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 30,
    "vocab_size": 50, "max_position_embeddings": 7, "eos_token_id": 1, "bos_token_id": 0,
}  # fmt: skip
DECODER = {f"decoder_{name}": value for name, value in TEXT.items() if name.startswith(("h", "n", "i"))}
FLAT = {**{name: value for name, value in VISION.items() if name != "image_size"}, "num_patches": 9}
MODELS = {
    "CLIPModel": ("CLIPConfig", {"vision_config": VISION, "text_config": TEXT, "projection_dim": 11}),
    "SiglipModel": ("SiglipConfig", {"vision_config": VISION, "text_config": TEXT}),
    "Siglip2Model": ("Siglip2Config", {"vision_config": FLAT, "text_config": TEXT}),
    "ViTForMaskedImageModeling": ("ViTConfig", {**VISION, "encoder_stride": 5}),
    "ViTMAEForPreTraining": ("ViTMAEConfig", {**VISION, **DECODER}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_source_is_run_whatever_stands_beside_its_encoder(name, tmp_path, capsys):
    config, entries = MODELS[name]
    saved = save(build(name, config, **entries), tmp_path / "saved")
    out = tmp_path / "out"
    status = main(["convert", str(saved), str(out), "--to", "hf", "--verify"])
    printed = capsys.readouterr()
    assert (status, "Traceback" in printed.err) == (0, False), printed.out + printed.err
    content = json.loads((out / "verification.json").read_text())
    ran = [(row["what"], row["ran_in"]) for row in content["rows"]]
    assert ran[-2:] == [("written", "transformers"), ("source", "transformers")]
    assert content["not_run"] == []


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.safetensors"
    write_weights(path, OWN, arrays_of(OWN))
    return path


def run(capsys, *argv):
    status = main([str(each) for each in argv])
    said = capsys.readouterr()
    return status, " ".join(said.out.split()), said.err


def library(monkeypatch, **changes):
    """torchvision, as if it did something else."""
    usual = libraries.LIBRARIES["torchvision"]
    changed = Library(**{**vars(usual), **changes})
    monkeypatch.setitem(libraries.LIBRARIES, "torchvision", changed)


def test_what_a_library_cannot_do_is_not_run(own, tmp_path, capsys, monkeypatch):
    def stop(model, images, cfg):
        raise RuntimeError("no kernel\nfor this")

    library(monkeypatch, call=stop)
    out = tmp_path / "tv.pth"
    status, printed, err = run(capsys, "convert", own, out, "--to", "torchvision", "--verify")
    assert (status, err) == (0, "")
    said = "torchvision failed with RuntimeError: no kernel for this"
    assert f"not run - written: {said}" in printed
    content = json.loads((tmp_path / "tv.pth.verification.json").read_text())
    assert content["not_run"][0] == f"written: {said}"


def test_what_is_not_equal_does_not_get_the_name(own, tmp_path, capsys, monkeypatch):
    library(monkeypatch, call=lambda model, images, cfg: model(images) + 1e-3)
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "tv.pth"
    status, printed, _ = run(capsys, "convert", own, out, "--to", "torchvision", "--verify")
    assert status == 1
    assert "DIFFERENT" in printed
    assert "there is no" in printed
    assert "tv.different.pth" in printed
    new = sorted(path.name for path in tmp_path.iterdir() if path not in before)
    assert new == ["tv.different.pth", "tv.different.pth.verification.json"]
    out.write_text("mine")
    status, _, _ = run(capsys, "convert", own, out, "--to", "torchvision", "--verify", "--force")
    assert (status, out.read_text()) == (1, "mine")


def test_what_a_library_refuses_is_different(own, tmp_path, capsys, monkeypatch):
    def other(checkpoint):
        return torch.nn.Linear(2, 3)

    library(monkeypatch, build=other)
    out = tmp_path / "tv.pth"
    status, printed, err = run(capsys, "convert", own, out, "--to", "torchvision", "--verify")
    assert (status, err, out.exists()) == (1, "", False)
    assert "not loaded" in printed
    assert "Missing key(s) in state_dict" in printed


def test_a_fault_of_ours_leaves_nothing(own, tmp_path, capsys, monkeypatch):
    import parity.porting.verification.verified

    def fault(converted, runs):
        raise KeyError("ours")

    monkeypatch.setattr(parity.porting.verification.verified, "verify", fault)
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "tv.pth"
    status, _, err = run(capsys, "convert", own, out, "--to", "torchvision", "--verify")
    assert status == 70
    assert "KeyError" in err
    assert err.splitlines()[-1].startswith("parity convert: internal error")
    assert sorted(tmp_path.iterdir()) == before


def test_equal_takes_the_place_of_what_was_there(own, tmp_path, capsys):
    out = tmp_path / "x.safetensors"
    out.write_text("old")
    status, printed, _ = run(capsys, "convert", own, out, "--to", "parity", "--verify", "--force")
    assert status == 0, printed
    np.testing.assert_array_equal(read_weights(out).arrays["norm.bias"], arrays_of(OWN)["norm.bias"])


def test_nothing_to_run_in_is_said_before_anything_is_written(own, tmp_path, capsys, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    gone = ("torch", "jax")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in gone else find(name)
    )
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "x.safetensors"
    status, _, err = run(capsys, "convert", own, out, "--to", "parity", "--verify")
    assert (status, "neither PyTorch nor JAX" in err) == (2, True)
    assert sorted(tmp_path.iterdir()) == before


def test_a_sum_that_is_rounded_is_held_against_what_its_type_loses(tmp_path, capsys):
    """The source adds a position to its class token when it runs; Big Vision's file has the sum."""
    values = np.random.default_rng(0)
    shapes = {name: value.shape for name, value in arrays_of(OWN).items()}
    arrays = {name: values.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    write_weights(tmp_path / "own.safetensors", OWN, arrays)
    plain = OWN.replace(act="gelu_tanh", norm_eps=1e-6)
    write_weights(tmp_path / "own.safetensors", plain, arrays)
    convert = ["convert", tmp_path / "own.safetensors"]
    status, printed, _ = run(capsys, *convert, tmp_path / "bv.npz", "--to", "big-vision", "--verify")
    assert status == 0, printed
    assert "1 of the tokens before the patches (rounded to float32)" in printed
    rows = json.loads((tmp_path / "bv.npz.verification.json").read_text())["rows"]
    (source,) = [row for row in rows if row["what"] == "source" and "twin" in row["ran_in"]]
    assert 1e-11 < source["error"] < source["limit"] < 1e-5
    assert {row["limit"] for row in rows if row["what"] == "written"} == {1e-12}


def test_from_python_a_file_that_differs_does_not_get_its_name(own, tmp_path, monkeypatch):
    done = parity.convert(own, to="torchvision", out=tmp_path / "equal.pth", verify=True)
    assert done.path.is_file()
    assert done.path.with_name("equal.pth.verification.json").is_file()
    assert not [each for each in done.warnings if "says nothing" in each]
    zeros = {name: np.zeros_like(each) for name, each in arrays_of(OWN).items()}
    write_weights(tmp_path / "zeros.safetensors", OWN, zeros)
    blind = parity.convert(tmp_path / "zeros.safetensors", to="parity", out=tmp_path / "z", verify=True)
    assert "what was compared says nothing: " in blind.warnings[-1]
    library(monkeypatch, call=lambda model, images, cfg: model(images) + 1e-3)
    wrong = r"out\.pth: not equal: .*; what was written is .*out\.different\.pth"
    with pytest.raises(WeightsError, match=wrong):
        parity.convert(own, to="torchvision", out=tmp_path / "out.pth", verify=True)
    assert not (tmp_path / "out.pth").exists()
