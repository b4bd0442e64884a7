"""Models and state dicts in memory are read as files are, without being saved."""

from __future__ import annotations

import warnings
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch

import parity
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.reading.live import act_of
from tests.support.dialect_proof import redraw
from vit_config import InputError, WeightsError
from vit_config.errors import UnstatedError

timm = import_timm()
import transformers  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    open_clip = import_module("open_clip")
torchvision = import_module("torchvision.models.vision_transformer")

TIMM = {
    "img_size": (21, 15),
    "patch_size": (7, 5),
    "embed_dim": 30,
    "depth": 2,
    "num_heads": 5,
    "num_classes": 7,
}
EPS = partial(torch.nn.LayerNorm, eps=3e-4)
HF = {
    "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 44,
    "image_size": (21, 15), "patch_size": (7, 5), "hidden_act": "gelu_new", "num_labels": 7,
}  # fmt: skip
VISION = {
    "image_size": (12, 9),
    "patch_size": 3,
    "width": 30,
    "head_width": 6,
    "layers": 2,
    "mlp_ratio": 2.0,
}
TEXT = {"context_length": 5, "vocab_size": 11, "width": 64, "heads": 1, "layers": 1}
WIDTHS = {"num_layers": 2, "num_heads": 5, "hidden_dim": 30, "mlp_dim": 22, "num_classes": 7}


def of_timm(name="vit_tiny_patch16_224", **options):
    return timm.create_model(name, **{**TIMM, **options})


MODELS = {
    "timm": of_timm,
    "timm, built otherwise": lambda: of_timm(
        act_layer=torch.nn.SiLU, norm_layer=EPS, global_pool="avg", class_token=False, fc_norm=False
    ),
    "timm, norms after the branches": lambda: of_timm(
        block_fn=timm.models.vision_transformer.ResPostBlock
    ),
    "timm, eva": lambda: of_timm(
        "eva02_tiny_patch14_224", img_size=(21, 14), patch_size=7, embed_dim=40
    ),
    "timm, differential": lambda: of_timm("vit_dlittle_patch16_reg1_gap_256", embed_dim=40),
    "torchvision": lambda: torchvision.VisionTransformer(image_size=12, patch_size=3, **WIDTHS),
    "open_clip": lambda: open_clip.CLIP(embed_dim=7, vision_cfg=VISION, text_cfg=TEXT, quick_gelu=True),
    "transformers": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**HF)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_read_as_it_is(name):
    torch.manual_seed(0)
    model = redraw(MODELS[name]()).float().train()
    before = {key: each.clone() for key, each in model.state_dict().items()}
    loaded = parity.load(model, framework="torch")
    H, W = loaded.config.image_size
    images = torch.randn(2, 3, H, W)
    with torch.no_grad():
        theirs = getattr(model.eval(), "visual", model)(images)
        expected = getattr(theirs, "logits", theirs)
        torch.testing.assert_close(loaded.model.logits(images), expected, rtol=1e-3, atol=1e-4)
    assert all(torch.equal(each, before[key]) for key, each in model.state_dict().items())
    jax_model = parity.to_jax(model)
    assert jax_model.cfg == loaded.config
    weights = loaded.model.state_dict()["blocks.0.norm1.weight"]
    if loaded.config.block == "pre_norm":
        np.testing.assert_array_equal(jax_model.blocks[0].norm1.scale[...], weights)


def test_an_activation_is_told_by_what_it_computes():
    given = torch.nn.SiLU(), torch.nn.GELU(approximate="tanh"), torch.nn.Tanh(), None
    assert [act_of(each) for each in given] == ["silu", "gelu_tanh", None, None]


def test_a_model_is_converted_without_being_saved(tmp_path):
    done = parity.convert(of_timm(), to="hf", out=tmp_path / "hf")
    (hop,) = done.hops
    assert (hop.source, hop.container, len(hop.digest)) == ("VisionTransformer", "torch (in memory)", 64)
    assert hop.versions["numpy"] == np.__version__
    assert hop.digest != parity.convert(of_timm(), to="hf", out=tmp_path / "b").hops[0].digest


def test_what_a_model_was_built_from_says_how_images_are_prepared():
    model = of_timm()
    assert parity.load(model, framework="torch").preprocess.mean == tuple(model.pretrained_cfg["mean"])


def test_a_function_that_no_schema_has_is_refused():
    model = redraw(of_timm()).float()
    model.blocks[1].norm2.eps = 0.5
    with pytest.raises(
        WeightsError, match=r"VisionTransformer: .* another function, off by .*, limit 1e-12.*load\("
    ):
        parity.to_jax(model)


def test_a_state_dict_is_read_and_what_it_leaves_open_is_asked_for():
    model = of_timm()
    state = model.state_dict()
    with pytest.raises(UnstatedError, match=r"state dict: cannot infer num_heads, .*, block; give"):
        parity.load(state, framework="torch")
    with pytest.raises(UnstatedError, match=r'; parity.load\(..., framework="jax", given={...}\) takes'):
        parity.to_jax(state)
    given = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "block": "pre_norm"}
    loaded = parity.load(state, framework="torch", given=given)
    arrays = {name: each.numpy() for name, each in state.items()}
    again = parity.load(arrays, framework="torch", given={**given, "in_channels": 3})
    images = torch.randn(2, 3, 21, 15)
    torch.testing.assert_close(loaded.model.logits(images), again.model.logits(images), rtol=0, atol=0)
    assert loaded.model.about.provenance == again.model.about.provenance.replace("arrays", "torch")


def test_other_things_in_memory_get_a_sentence():
    with pytest.raises(
        InputError, match=r"builtins.int is no checkpoint; give a path, .* or a state dict"
    ):
        parity.to_jax(3)
    with pytest.raises(InputError, match=r"vit_torch.ViT is a twin already; to_jax and to_torch"):
        parity.to_torch(parity.create_model("mnist_exercise", framework="torch"))
