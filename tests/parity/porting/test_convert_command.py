"""`parity convert` and `parity inspect` on files: what users do, and what they do wrong."""

import hashlib
import os
import pickle
import re
from argparse import Namespace

import numpy as np
import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.tiny import TINY
from vit_config import Preprocess, read_weights, write_weights

pytestmark = pytest.mark.quick

SQUARE = TINY.replace(image_size=(32, 32), patch_size=(8, 8), norm_eps=1e-6)
PREPROCESS = Preprocess(class_names=tuple(f"class {i}" for i in range(11)), license="mit")


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.safetensors"
    write_weights(path, SQUARE, arrays_of(SQUARE), PREPROCESS)
    return path


@pytest.fixture
def state(own, tmp_path):
    """A torchvision state dict."""
    convert(own, to="torchvision", out=tmp_path / "tv.pth")
    return torch.load(tmp_path / "tv.pth", weights_only=True)


def save(state, path):
    torch.save(state, path)
    return path


def test_there_and_back(own, tmp_path, capsys):
    status, out, _ = run(capsys, "convert", own, tmp_path / "tv.pth", "--to", "torchvision")
    assert status == 0
    assert "torchvision" in out
    back = tmp_path / "back.safetensors"
    assert run(capsys, "convert", tmp_path / "tv.pth", back, "--to", "parity")[0] == 0
    weights = read_weights(back)
    assert weights.config == SQUARE
    assert weights.preprocess == PREPROCESS
    for name, array in arrays_of(SQUARE).items():
        np.testing.assert_array_equal(weights.arrays[name], array)
    status, out, _ = run(capsys, "inspect", back)
    hops = [" ".join(line.split()) for line in out.splitlines() if line.startswith("came from")]
    assert [hop.partition(", sha256 ")[0] for hop in hops] == [
        "came from own.safetensors, safetensors, parity",
        "came from tv.pth, torch, torchvision",
    ]


def test_verified(own, tmp_path, capsys):
    out = tmp_path / "tv.pth"
    status, printed, _ = run(capsys, "convert", own, out, "--to", "torchvision", "--verify")
    assert status == 0
    assert printed.count("equal") == 3
    assert re.search(r"written +torchvision", printed)
    assert (tmp_path / "tv.pth.verification.json").is_file()


def test_changes_on_the_way(own, tmp_path, capsys):
    out = tmp_path / "changed.safetensors"
    flags = ("--dtype", "bfloat16", "--image-size", "64x48", "--num-classes", "3")
    status, printed, _ = run(capsys, "convert", own, out, "--to", "parity", *flags, "--verify")
    assert status == 0, printed
    for said in ("32x32 to 64x48", "fitted by bicubic_antialias", "all zero", "rounded to bfloat16"):
        assert said in printed
    checkpoint = read_checkpoint(out)
    assert checkpoint.config.image_size == (64, 48)
    assert checkpoint.arrays["head.weight"].shape == (3, 30)
    assert checkpoint.preprocess == PREPROCESS.replace(class_names=None)


def test_every_hop_is_kept(own, tmp_path):
    convert(own, to="torchvision", out=tmp_path / "a.pth")
    convert(tmp_path / "a.pth", to="parity", out=tmp_path / "b.safetensors")
    convert(tmp_path / "b.safetensors", to="timm", out=tmp_path / "c.safetensors")
    hops = read_checkpoint(tmp_path / "c.safetensors").hops
    assert [hop.source for hop in hops] == ["own.safetensors", "a.pth", "b.safetensors"]
    assert [hop.dialect for hop in hops] == ["parity", "torchvision", "parity"]
    for hop in hops:
        assert hop.digest == hashlib.sha256((tmp_path / hop.source).read_bytes()).hexdigest()
        assert hop.license == "mit"


def test_inspect_says_where_each_field_is_from(state, tmp_path, capsys):
    path = save({"model": state, "epoch": 3}, tmp_path / "run.pt")
    status, out, _ = run(capsys, "inspect", path, "--set", "num_heads=5", "--depth", "0")
    assert status == 0
    assert "stripped 'model' from every name" in out
    assert re.search(r"num_heads +5 +given", out)
    assert re.search(r"depth +3 +shapes", out)
    assert re.search(r"norm_eps +1e-06 +code of torchvision", out)
    assert re.search(r"image_size +32x32 +shapes, taking the grid to be square", out)
    assert "assumed:" in out
    assert "anomalies      none" in out
    assert "unknown; give --preprocess FILE" in out


def test_inspect_finds_what_is_odd(state, tmp_path, capsys):
    state["heads.head.weight"].zero_()
    state["encoder.ln.weight"][3] = float("nan")
    path = save(state, tmp_path / "odd.pth")
    _, out, _ = run(capsys, "inspect", path, "--set", "num_heads=5", "--depth", "0")
    out = " ".join(out.split())
    assert "norm.weight: 1 of 30 values are not finite" in out
    assert "head.weight: all zero" in out


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"echo executed > {self.path}",)


WRONG = {
    "no heads": (lambda s, p: save(s, p), (), ["cannot infer num_heads", "--set num_heads=N"]),
    "heads that do not divide": (lambda s, p: save(s, p), ("--set", "num_heads=7"), ["num_heads = 7"]),
    "no such field": (lambda s, p: save(s, p), ("--set", "num_head=5"), ["did you mean 'num_heads'"]),
    "contradicts the shapes": (
        lambda s, p: save(s, p),
        ("--set", "num_heads=5", "depth=12"),
        ["depth", "12", "3"],
    ),
    "a block is missing": (
        lambda s, p: save({k: v for k, v in s.items() if "layer_1." not in k}, p),
        ("--set", "num_heads=5"),
        ["block 1 is missing"],
    ),
    "a bias is missing": (
        lambda s, p: save({k: v for k, v in s.items() if k != "heads.head.bias"}, p),
        ("--set", "num_heads=5"),
        ["head_bias = false"],
    ),
    "another shape": (
        lambda s, p: save({**s, "encoder.ln.weight": torch.zeros(31)}, p),
        ("--set", "num_heads=5"),
        ["norm.weight: shape (31,) in the file, (30,) by the schema"],
    ),
    "another name": (
        lambda s, p: save({**s, "extra.weight": torch.zeros(31)}, p),
        ("--set", "num_heads=5"),
        ["1 tensors are unknown to torchvision: extra.weight"],
    ),
    "integers": (
        lambda s, p: save({**s, "class_token": torch.zeros(1, 1, 30, dtype=torch.int32)}, p),
        ("--set", "num_heads=5"),
        ["class_token: of type int32"],
    ),
    "a grid that is no square": (
        lambda s, p: save({**s, "encoder.pos_embedding": torch.zeros(1, 13, 30)}, p),
        ("--set", "num_heads=5"),
        ["cannot infer image_size"],
    ),
    "a grid that does not fit": (
        lambda s, p: save({**s, "encoder.pos_embedding": torch.zeros(1, 13, 30)}, p),
        ("--set", "num_heads=5", "image_size=[32,32]"),
        ["13 rows", "16 patches"],
    ),
    "two models": (
        lambda s, p: save({"state_dict": s, "model_ema": s}, p),
        ("--set", "num_heads=5"),
        ["holds several models, model_ema (torchvision), state_dict (torchvision)", "--part"],
    ),
    "no such part": (
        lambda s, p: save({"state_dict": s}, p),
        ("--part", "teacher"),
        ["nothing in it begins with 'teacher'", "there is state_dict (torchvision)"],
    ),
    "no model": (
        lambda s, p: save({"conv1.weight": torch.zeros(3, 3)}, p),
        (),
        ["no Vision Transformer of a known dialect", "conv1.weight"],
    ),
    "no tensors": (lambda s, p: save({"epoch": 3}, p), (), ["no tensors"]),
    "text": (lambda s, p: p.write_text("hello"), (), ["model.pth"]),
    "nothing": (lambda s, p: p.write_bytes(b""), (), ["model.pth", "is empty"]),
    "code": (
        lambda s, p: save({"model": s, "hook": Canary(p.with_name("canary"))}, p),
        (),
        ["model.pth", "posix.system", "nothing"],
    ),
    "bare code": (
        lambda s, p: p.write_bytes(pickle.dumps(Canary(p.with_name("canary")))),
        (),
        ["model.pth"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_sources(case, state, tmp_path, capsys):
    make, flags, expected = WRONG[case]
    folder = tmp_path / "wrong"
    folder.mkdir()
    path = folder / "model.pth"
    make(state, path)
    refused(capsys, folder, expected, "convert", path, folder / "out", "--to", "timm", *flags)


def test_harmless_objects_pass(state, tmp_path, capsys):
    content = {"model": state, "args": Namespace(lr=0.1), "epoch": np.int64(3), "loss": np.float64(0.5)}
    path = save(content, tmp_path / "run.npz")  # the name's ending does not matter
    out = tmp_path / "out.safetensors"
    status, printed, err = run(capsys, "convert", path, out, "--to", "parity", "--set", "num_heads=5")
    assert status == 0, err
    assert "stripped 'model'" in printed


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, -1])
def test_truncated(own, tmp_path, capsys, keep):
    content = own.read_bytes()
    end = round(len(content) * keep) if isinstance(keep, float) else keep
    folder = tmp_path / "cut"
    folder.mkdir()
    cut = folder / "cut.safetensors"
    cut.write_bytes(content[:end])
    refused(capsys, folder, ["cut.safetensors"], "convert", cut, folder / "out", "--to", "timm")


def test_a_flipped_bit_is_named(own, tmp_path, capsys):
    content = bytearray(own.read_bytes())
    content[-9] ^= 4
    own.write_bytes(content)
    folder = tmp_path / "out"
    folder.mkdir()
    expected = ["own.safetensors", "damaged"]
    refused(capsys, folder, expected, "convert", own, folder / "x.safetensors", "--to", "timm")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), ["give --to DIALECT"]),
        (("--to", "hff"), ["unknown dialect 'hff'; did you mean hf? There are big-vision, "]),
        (("--to", "transformers"), ["did you mean hf?"]),
        (("--to", "HuggingFace"), ["did you mean hf?"]),
        (("--to", "open_clip"), ["did you mean open-clip?"]),
        (("--to", "xyz"), ["unknown dialect 'xyz'; there are big-vision, "]),
        (("--to", "ONNX"), ["ONNX is no dialect of weights; `parity export --to onnx` writes it"]),
        (("--to", "torchvision", "--image-size", "33x32"), ["not divisible", "nearest valid sizes"]),
        (("--to", "torchvision", "--image-size", "64x32"), ["square"]),
        (("--to", "parity", "--num-classes", "-1"), ["num_classes = -1"]),
        (("--to", "parity", "--dtype", "int8"), ["int8"]),
        (("--to", "hf", "--by", "x"), ["'x', expected one of mean-scale, repeat, sum, zeros;"]),
        (("--to", "parity", "--out", "o"), ["--out: goes with --manifest only"]),
        (("--to", "parity", "--into-part", "x"), ["--into-part x: goes with --into HOST"]),
        (("--to", "parity", "--lora", "--dtype", "float16"), ["--dtype: not with --lora"]),
        (("--into", "host", "--lora"), ["--lora: not with --into"]),
        (("--to", "hf", "--manifest", "m", "--out", "o"), ["--manifest: takes --out DIR, not SRC"]),
    ],
)
def test_wrong_flags(own, tmp_path, capsys, flags, expected):
    folder = tmp_path / "out"
    folder.mkdir()
    refused(capsys, folder, expected, "convert", own, folder / "x.safetensors", *flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "--manifest: needs --out DIR"),
        (("--out", "o", "--lora", "--text"), "--text, --lora: go with one checkpoint"),
        (("--out", "o", "--step", "3", "--set", "act=relu"), "--step: go with one checkpoint; convert"),
        (("--out", "o", "--set", "act=relu"), "--license: go with one checkpoint; write them in"),
    ],
)
def test_flags_that_a_manifest_says_itself(capsys, flags, expected):
    status, _, err = run(capsys, "convert", "--manifest", "m.json", "--to", "hf", *flags)
    assert (status, expected in err) == (2, True)


def test_where_it_may_not_write(own, tmp_path, capsys):
    taken = tmp_path / "taken.safetensors"
    taken.write_text("mine")
    before = sorted(tmp_path.iterdir())
    for out, expected in [
        (taken, "already exists"),
        (own, "is what is read"),
        (tmp_path / "none/x.safetensors", "no such folder"),
        (tmp_path / "x.docx", "expected a folder, or a file that ends in"),
        (tmp_path / "x.pt2", "a program, not weights; parity export writes .onnx, .stablehlo, .pt2"),
    ]:
        status, _, err = run(capsys, "convert", own, out, "--to", "parity")
        assert status == 2
        assert expected in err
    status, _, err = run(capsys, "convert", own, own, "--to", "parity", "--force")
    assert (status, "is what is read" in err) == (2, True)
    assert sorted(tmp_path.iterdir()) == before
    assert taken.read_text() == "mine"
    link = tmp_path / "itself.safetensors"
    link.symlink_to(link.name)
    assert run(capsys, "convert", own, link, "--to", "parity")[0] == 2
    assert run(capsys, "convert", own, link, "--to", "parity", "--force")[0] == 0
    assert run(capsys, "convert", own, taken, "--to", "parity", "--force")[0] == 0
    assert read_weights(taken).config == SQUARE


def test_what_is_replaced_never_holds_what_is_read(own, state, tmp_path, capsys):
    here = tmp_path / "all"
    folder = here / "timm"
    here.mkdir()
    convert(own, to="timm", out=folder)
    host = save(state, here / "tv.pth")
    before = sorted(here.rglob("*"))
    for words in ([host, here, "--to", "hf"], [folder, here, "--to", "hf"], [own, here, "--into", host]):
        flags = ["--set", "num_heads=5"] if words[0] == host else []
        status, _, err = run(capsys, "convert", *words, *flags, "--force")
        assert (status, f"{here}: holds {here}" in err, "which is read" in err) == (2, True, True), err
    pixels = here / "pixels.json"
    pixels.write_text('{"mean": [0.5, 0.5, 0.5]}')
    status, _, err = run(capsys, "convert", own, here, "--to", "timm", "--preprocess", pixels, "--force")
    assert (status, f"{here}: holds {pixels}" in err, pixels.exists()) == (2, True, True), err
    pixels.unlink()
    assert sorted(here.rglob("*")) == before


def test_what_a_target_cannot_hold(tmp_path, capsys):
    cfg = SQUARE.replace(register_tokens=2, act="quick_gelu", norm="rmsnorm", qkv_bias=False)
    path = tmp_path / "own.safetensors"
    write_weights(path, cfg, arrays_of(cfg))
    expected = ["register_tokens = 2", "act = quick_gelu", "norm = rmsnorm"]
    refused(capsys, tmp_path, expected, "convert", path, tmp_path / "x", "--to", "torchvision")


def test_a_family_names_its_nearest_and_what_is_in_the_way_of_all(tmp_path, capsys):
    cfg = SQUARE.replace(attention_norm=True, register_tokens=2, pos_embed_prefix="class", norm_eps=1e-5)
    path = tmp_path / "own.safetensors"
    write_weights(path, cfg, arrays_of(cfg))
    expected = [
        "dialects of hf can hold this model (attention_norm in the way of each)",
        "hf-dinov2-registers, but for attention_norm = true (hf-dinov2-registers has false)",
    ]
    refused(capsys, tmp_path, expected, "convert", path, tmp_path / "x", "--to", "hf")


def test_a_grid_that_is_taken_for_a_square_is_said(own, state, tmp_path, capsys):
    said = "took the 16 positions for a square of 4x4, so images are 32x32; --set image_size=HxW"
    convert(own, to="timm", out=tmp_path / "timm.pth")
    path = save(torch.load(tmp_path / "timm.pth", weights_only=True), tmp_path / "bare.pth")
    known = ("num_heads=5", "norm_eps=1e-6", "act=gelu", "pool=class", "block=pre_norm")
    flags = ("--to", "parity", "--set", *known)
    status, printed, err = run(capsys, "convert", path, tmp_path / "a.safetensors", *flags)
    assert status == 0, err
    assert said in " ".join(printed.split())
    assert any(said in note for note in read_checkpoint(tmp_path / "a.safetensors").hops[-1].done)
    out = tmp_path / "b.safetensors"
    status, printed, _ = run(capsys, "convert", path, out, *flags, "image_size=16x64")
    assert (status, "square" in printed) == (0, False)
    assert read_checkpoint(out).config.image_size == (16, 64)
    # torchvision has squares alone
    assert read_checkpoint(save(state, tmp_path / "tv.pth"), given={"num_heads": 5}).notes == ()


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_the_own_file_by_the_name_of_a_framework(name, own, tmp_path, capsys):
    out = tmp_path / "again.safetensors"
    assert run(capsys, "convert", own, out, "--to", name)[0] == 0
    assert read_weights(out).config == SQUARE


def test_the_version(capsys):
    status, out, err = run(capsys, "--version")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"parity (\d+\.\d+\.\d+.*|from a source tree.*)\n", out)


@pytest.mark.parametrize("target", ["x.safetensors", "x.pth", "x.npz", "x.msgpack"])
def test_values_that_are_not_finite(target, tmp_path, capsys):
    arrays = arrays_of(SQUARE)
    arrays["norm.bias"][[3, 5]] = np.nan, -np.inf
    arrays["blocks.1.attn.qkv.weight"][:, 2] = np.inf
    path = tmp_path / "own.safetensors"
    write_weights(path, SQUARE, arrays)
    expected = [
        "own.safetensors: blocks.1.attn.qkv.weight: 90 of 2,700 values are not finite",
        "norm.bias: 2 of 30 values are not finite",
        "--allow-nonfinite",
    ]
    argv = ("convert", path, tmp_path / target, "--to", "parity")
    refused(capsys, tmp_path, expected, *argv)
    status, printed, _ = run(capsys, *argv, "--allow-nonfinite")
    assert status == 0
    assert "values that are not finite may pass, as asked" in printed
    if not target.endswith("msgpack"):  # which keeps no header
        given = read_checkpoint(tmp_path / target, dialect="parity")
        np.testing.assert_array_equal(given.arrays["norm.bias"].load(), arrays["norm.bias"])


def test_a_type_too_narrow(tmp_path, capsys):
    arrays = arrays_of(SQUARE)
    arrays["norm.bias"][3] = 1e6
    path = tmp_path / "own.safetensors"
    write_weights(path, SQUARE, arrays)
    expected = ["norm.bias", "does not fit into float16"]
    flags = ("--to", "parity", "--dtype", "float16")
    refused(capsys, tmp_path, expected, "convert", path, tmp_path / "x.safetensors", *flags)
