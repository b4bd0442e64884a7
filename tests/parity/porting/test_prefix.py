"""A prefix or a wrapper around what is written, read as DINO, DINOv2 and Lightning read it."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.peers import import_timm
from tests.support.tiny import TINY
from vit_config import write_weights

CFG = TINY.replace(depth=1, num_classes=0, norm_eps=1e-6)
timm = import_timm()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix") / "a.safetensors"
    write_weights(path, CFG, arrays_of(CFG))
    return path


def body():
    options = {"img_size": (21, 15), "patch_size": (7, 5), "embed_dim": 30, "depth": 1, "num_heads": 5}
    kind = timm.models.vision_transformer.VisionTransformer
    return kind(**options, num_classes=0, global_pool="token", mlp_ratio=44 / 30)


def load_pretrained_weights(model, path, key):
    """As facebookresearch/dino utils.py and facebookresearch/dinov2 dinov2/utils/utils.py do."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    if key in state:
        state = state[key]
    state = {name.replace("module.", ""): each for name, each in state.items()}
    state = {name.replace("backbone.", ""): each for name, each in state.items()}
    return model.load_state_dict(state, strict=True)


def same(model, source):
    stored = read_checkpoint(source).arrays
    return all(
        np.array_equal(each.numpy(), stored[name].load()) for name, each in model.state_dict().items()
    )


def test_dinos_own_training_file(source, tmp_path, capsys):
    out = tmp_path / "checkpoint.pth"
    flags = ("--to", "timm", "--wrapper", "teacher", "--prefix", "backbone.")
    assert run(capsys, "convert", source, out, *flags)[0] == 0
    model = body()
    load_pretrained_weights(model, out, "teacher")
    assert same(model, source)
    again = read_checkpoint(out)
    assert (again.place.branch, again.config) == ("teacher.backbone", CFG)
    convert(out, to="timm", out=tmp_path / "bare.pth")  # and the prefix is off again
    body().load_state_dict(torch.load(tmp_path / "bare.pth", weights_only=True), strict=True)


def test_a_lightning_module(source, tmp_path):
    """`self.model` of a module, whose file has `state_dict`."""
    convert(source, to="timm", out=tmp_path / "a.ckpt.pt", prefix="model.", wrapper="state_dict")
    module = torch.nn.Module()
    module.model = body()
    state = torch.load(tmp_path / "a.ckpt.pt", weights_only=True)["state_dict"]
    module.load_state_dict(state, strict=True)
    assert same(module.model, source)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".msgpack", ".pth"])
@pytest.mark.parametrize("to", ["timm", "mae", "dinov2"])
def test_every_kind_of_file_is_read_again(to, suffix, source, tmp_path):
    out = tmp_path / f"out{suffix}"
    convert(source, to=to, out=out, prefix="teacher.backbone.")
    given = {"num_heads": 5, "image_size": (21, 15), "norm_eps": 1e-6, "act": "gelu", "pool": "class",
             "block": "pre_norm", "in_channels": 3}  # fmt: skip
    bare = suffix == ".msgpack"
    again = read_checkpoint(
        out, dialect=to if to != "timm" and bare else None, given=given if bare else {}
    )
    for name, stored in read_checkpoint(source).arrays.items():
        np.testing.assert_array_equal(again.arrays[name].load(), stored.load())
    if suffix == ".safetensors":
        with safe_open(out, "np") as file:
            assert all(name.startswith("teacher.backbone.") for name in file.keys())  # noqa: SIM118


@pytest.mark.parametrize(
    ("out", "flags", "said"),
    [
        ("a.pth", ("--to", "timm", "--prefix", "model"), "--prefix model: expected a dot"),
        ("a", ("--to", "timm", "--prefix", "model."), "--prefix model.: goes with a file"),
        ("a.npz", ("--to", "timm", "--wrapper", "model"), "--wrapper model: goes with a DST that ends"),
        ("a.pth", ("--to", "parity", "--prefix", "model."), "give --to another dialect"),
    ],
)
def test_refusals(out, flags, said, source, tmp_path, capsys):
    refused(capsys, tmp_path, [said], "convert", source, tmp_path / out, *flags)
