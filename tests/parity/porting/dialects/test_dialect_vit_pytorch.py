"""lucidrains' vit-pytorch: real models of the installed package, there and back."""

from __future__ import annotations

import importlib
from importlib import import_module

import numpy as np
import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import prove, redraw, twin_logits
from tests.support.dialect_torch import logits_of, save_torch, strictly
from tests.support.tiny import error
from vit_config import ConfigError
from vit_config.errors import UnstatedError

import_timm()
vit_pytorch = import_module("vit_pytorch")

SMALL = {"image_size": (12, 9), "patch_size": 3, "num_classes": 7, "dim": 30, "depth": 3, "mlp_dim": 22}
GIVEN = {"num_heads": 5, "patch_size": 3, "image_size": (12, 9)}


def build(**options) -> torch.nn.Module:
    return redraw(vit_pytorch.ViT(**{**SMALL, "heads": 5, "dim_head": 4, **options}))


def build_simple(module: str = "simple_vit", **options) -> torch.nn.Module:
    """A SimpleViT whose position table, which it computes in float32, is in float64."""
    code = importlib.import_module(f"vit_pytorch.{module}")
    model = redraw(code.SimpleViT(**{**SMALL, "dim": 28, "heads": 5, "dim_head": 6, **options}))
    height, width = (side // 3 for side in options.get("image_size", SMALL["image_size"]))
    try:
        torch.set_default_dtype(torch.float64)
        model.pos_embedding = code.posemb_sincos_2d(height, width, 28, dtype=torch.float64)
    finally:
        torch.set_default_dtype(torch.float32)
    return model


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_vit(pool, tmp_path):
    """Heads of a width of their own; without a class token, a parameter of no rows."""
    model = build(pool=pool)
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="vit-pytorch",
        out=tmp_path / "back.pt",
        reload=strictly(lambda: build(pool=pool)),
        given=GIVEN,
    )


def test_the_width_of_heads_may_be_given_instead_of_their_number(tmp_path):
    source = read_checkpoint(
        save_torch(build(), tmp_path),
        given={"attention_head_dim": 4, "patch_size": 3, "image_size": (12, 9)},
    )
    assert source.config.num_heads == 5
    assert source.origins["num_heads"] == "shapes and attention_head_dim"


def test_what_no_shape_shows_is_asked_for(tmp_path):
    """27 values may be 3 x 3 of three channels or one pixel of 27; nothing in the package's code says
    that a grid is square."""
    asked = r"cannot infer num_heads, patch_size, image_size; .*a patch has 27 values, such as 3x3 in 3"
    with pytest.raises(UnstatedError, match=asked):
        read_checkpoint(save_torch(build(image_size=12), tmp_path))


@pytest.mark.parametrize(("channels", "patch"), [(12, 4), (3, 8)])
def test_as_many_values_are_another_patch_of_other_channels(channels, patch, tmp_path):
    """12 x 4 x 4 = 3 x 8 x 8: the file is the same, and what the user says decides."""
    sizes = {"image_size": 4 * patch, "patch_size": patch, "channels": channels}
    path = save_torch(build(**sizes), tmp_path)
    with pytest.raises(UnstatedError, match="8x8 in 3 channels or 4x4 in 12 channels"):
        read_checkpoint(path)
    for said in ({"patch_size": patch}, {"in_channels": channels}):
        source = read_checkpoint(path, given={"num_heads": 5, "image_size": 4 * patch, **said})
        assert (source.config.patch_size, source.config.in_channels) == ((patch, patch), channels)
    assert "took patches of 192 values" in " ".join(source.notes)


def test_what_the_code_of_the_package_decides(tmp_path):
    source = read_checkpoint(
        save_torch(build(image_size=12), tmp_path), given={**GIVEN, "image_size": 12}
    )
    assert source.config.attention_head_dim == 4
    assert source.config.act == "gelu"
    assert source.config.norm_eps == 1e-5
    assert source.origins["norm_eps"] == "code of vit-pytorch's ViT"
    assert source.preprocess is None


def test_one_head_that_fills_the_token_has_no_projection(tmp_path):
    def again():
        return build(heads=1, dim_head=30, image_size=12)

    model = again()
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="vit-pytorch-one-head",
        out=tmp_path / "back.pt",
        reload=strictly(again),
        given={"patch_size": 3, "image_size": 12},
    )


def test_other_channels(tmp_path):
    def again():
        return build(channels=2)

    model = again()
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="vit-pytorch",
        out=tmp_path / "back.pt",
        reload=strictly(again),
        given=GIVEN,
    )


@pytest.mark.parametrize("module", ["simple_vit", "simple_vit_with_register_tokens"])
def test_simple_vit(module, tmp_path):
    """Fixed positions are not in the file, so the image's size is asked for; registers come last there,
    first here, which attention does not see."""
    model = build_simple(module)
    source = save_torch(model, tmp_path)
    with pytest.raises(ConfigError, match="cannot infer num_heads, patch_size, image_size"):
        read_checkpoint(source)
    prove(
        source,
        logits_of(model),
        to="simple-vit-pytorch",
        out=tmp_path / "back.pt",
        reload=strictly(lambda: build_simple(module)),
        given=GIVEN,
    )


def test_simple_vit_as_the_package_runs_it(tmp_path):
    """Its table of sines in float32 is all that keeps it from rounding error of float64."""
    model = build_simple()
    source = save_torch(model, tmp_path)
    convert(source, to="parity", out=tmp_path / "own.safetensors", given=GIVEN)
    model.pos_embedding = model.pos_embedding.float()
    images = np.random.default_rng(0).standard_normal((2, 3, 12, 9))
    for logits in twin_logits(tmp_path / "own.safetensors", images).values():
        assert 1e-12 < error(logits, logits_of(model)(images)) < 1e-6


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_an_older_vit_whose_token_has_a_leading_axis(pool, tmp_path):
    """Its mean was one of the class token too."""
    model = build()
    state = model.state_dict()
    state["cls_token"], state["pos_embedding"] = state["cls_token"][None], state["pos_embedding"][None]
    torch.save(state, tmp_path / "saved.pt")
    model.pool = "mean" if pool == "mean" else "cls"
    with pytest.raises(ConfigError, match="pool"):
        read_checkpoint(tmp_path / "saved.pt", given=GIVEN)
    prove(
        tmp_path / "saved.pt",
        logits_of(model),
        to="vit-pytorch-batched",
        out=tmp_path / "back.pt",
        given={**GIVEN, "pool": pool},
    )


def test_what_it_cannot_say(tmp_path):
    convert(save_torch(build(), tmp_path), to="parity", out=tmp_path / "own.safetensors", given=GIVEN)
    with pytest.raises(ConfigError, match=r"simple-vit-pytorch cannot hold this model: .*class_token"):
        convert(tmp_path / "own.safetensors", to="simple-vit-pytorch", out=tmp_path / "no.pt")
    with pytest.raises(ConfigError, match=r"torchvision cannot .*patches are normalised"):
        convert(tmp_path / "own.safetensors", to="torchvision", out=tmp_path / "no.pth")
