"""Files of timm's that no config.json of today lies beside: bare ones, of trainings, wrapped, old."""

import json
from argparse import Namespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file as save_torch

from parity.porting.dialects import dialects
from parity.porting.opening.opened import open_checkpoint
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.recognition.recognise import find
from parity.porting.verification.verified import convert_verified
from parity.porting.writing.conversion import convert
from tests.support.timm_models import bare, saved, small, timm, write_json
from vit_config import PRESETS, ConfigError


@pytest.mark.parametrize(
    ("name", "spelling", "asked"),
    [
        ("vit_tiny_patch16_224", "timm-vit", "num_heads, norm_eps, act, pool, image_size, block"),
        (
            "vit_base_patch16_clip_224",
            "timm-vit",
            "num_heads, norm_eps, act, pool, image_size, rope, block",
        ),
        (
            "vit_pe_core_base_patch16_224",
            "timm-vit",
            "num_heads, norm_eps, act, image_size, rope, block, pool_",
        ),
        (
            "vit_base_patch16_dinov3",
            "timm-eva",
            "num_heads, norm_eps, pool, image_size, pos_embed, rope",
        ),
        (
            "eva02_base_patch14_224",
            "timm-eva-split",
            "num_heads, norm_eps, pool, image_size, rope, block",
        ),
        ("beit_base_patch16_224", "timm-beit", "num_heads, norm_eps, pool, image_size"),
    ],
)
def test_what_a_bare_file_leaves_open_is_asked_for(tmp_path, name, spelling, asked):
    path = bare(tmp_path / "bare", small(name))
    assert find(open_checkpoint(path), dialects()).dialect.name == spelling
    with pytest.raises(ConfigError, match=f"cannot infer {asked}"):
        read_checkpoint(path)


def test_a_preset_answers_for_a_bare_file(tmp_path):
    changes = {"depth": 12, "embed_dim": 192, "num_heads": 3, "img_size": 32, "num_classes": 5}
    model = timm.create_model("vit_tiny_patch16_224", **changes)
    source = read_checkpoint(bare(tmp_path / "bare", model), like="vit_tiny_patch16_224")
    assert source.config == PRESETS["vit_tiny_patch16_224"].replace(image_size=32, num_classes=5)


def training(**records):
    model = timm.create_model("test_vit", num_classes=5, img_size=64)
    state = model.state_dict()
    shadow = {name: value + 1 for name, value in state.items()}
    optimizer = torch.optim.AdamW(model.parameters()).state_dict()
    return {"epoch": 3, "optimizer": optimizer, "state_dict": state, "state_dict_ema": shadow, **records}


ARGS = {"model": "test_vit", "num_classes": 5, "img_size": None, "input_size": [3, 64, 64], "gp": None,
        "in_chans": None, "model_kwargs": {}, "drop": 0.1, "opt": "adamw"}  # fmt: skip


def test_a_training_checkpoint_says_its_architecture(tmp_path):
    path = tmp_path / "last.pth.tar"
    torch.save(training(arch="test_vit", args=Namespace(**ARGS)), path)
    with pytest.raises(
        ConfigError,
        match=r"several models, state_dict .timm-vit., state_dict_ema .*choose by --part state_dict",
    ):
        read_checkpoint(path)
    source = read_checkpoint(path, part="state_dict_ema")
    assert source.config == PRESETS["test_vit"].replace(num_classes=5, image_size=64)
    assert source.origins["norm_eps"] == source.origins["image_size"] == "its training's records"
    plain = read_checkpoint(path, part="state_dict")
    np.testing.assert_array_equal(
        source.arrays["norm.weight"].load(), plain.arrays["norm.weight"].load() + 1
    )


def test_a_training_checkpoint_with_other_arguments(tmp_path):
    path = tmp_path / "last.pth.tar"
    model = timm.create_model(
        "test_vit", num_classes=5, img_size=(32, 64), global_pool="avg", reg_tokens=2
    )
    kwargs = {"img_size": [32, 64], "reg_tokens": 2}
    args = {**ARGS, "input_size": None, "gp": "avg", "model_kwargs": kwargs}
    torch.save({"arch": "test_vit", "args": Namespace(**args), "state_dict": model.state_dict()}, path)
    cfg = read_checkpoint(path).config
    assert cfg == PRESETS["test_vit"].replace(
        num_classes=5, image_size=(32, 64), register_tokens=2, pool="mean", final_norm="post_pool"
    )
    args["model_kwargs"]["gated"] = True
    torch.save({"arch": "test_vit", "args": Namespace(**args), "state_dict": model.state_dict()}, path)
    with pytest.raises(ConfigError, match="the argument gated = True is not supported"):
        read_checkpoint(path)


@pytest.mark.parametrize("arch", ["visiontransformer", "resnet50", 5])
def test_a_name_that_is_none_of_timms_says_nothing(tmp_path, arch):
    path = tmp_path / "last.pth.tar"
    torch.save(training(arch=arch), path)
    with pytest.raises(ConfigError, match="cannot infer num_heads"):
        read_checkpoint(path, part="state_dict")


@pytest.mark.parametrize("attribute", ["model", "net", "module.model", "backbone"])
def test_lightning_puts_the_model_into_an_attribute(tmp_path, attribute):
    path = tmp_path / "epoch=3.ckpt"
    state = timm.create_model("test_vit", num_classes=5, img_size=64).state_dict()
    named = {f"{attribute}.{name}": value for name, value in state.items()}
    named["criterion.weight"] = torch.ones(5)
    records = {
        "hyper_parameters": {"model_name": "test_vit", "lr": 1e-3},
        "pytorch-lightning_version": "2.5",
    }
    torch.save({"state_dict": named, "optimizer_states": [{"state": {}}], **records}, path)
    source = read_checkpoint(path)
    assert source.config == PRESETS["test_vit"].replace(num_classes=5, image_size=64)
    assert source.notes[0] == f"stripped 'state_dict.{attribute}' from every name"


def test_the_transformers_wrapper_of_timm(tmp_path):
    model = small("vit_tiny_patch16_224")
    folder = saved(tmp_path / "timm", model)
    config = json.loads((folder / "config.json").read_text())
    write_json(
        folder,
        {**config, "model_type": "timm_wrapper", "architectures": ["TimmWrapperForImageClassification"]},
    )
    state = {f"timm_model.{name}": value for name, value in model.state_dict().items()}
    save_torch(state, folder / "model.safetensors")
    assert read_checkpoint(folder).config.hidden_size == 48


def test_a_config_json_of_older_timm(tmp_path):
    """Everything in one dictionary; and files of those days kept an index, and a layer of 2021."""
    model = small("beit_base_patch16_224")
    folder = saved(tmp_path / "timm", model)
    config = json.loads((folder / "config.json").read_text())
    old = {**config["pretrained_cfg"], "architecture": "beit_base_patch16_224", "num_classes": 11}
    write_json(folder, {**old, "input_size": [3, 32, 48], "model_args": config["model_args"]})
    state = model.state_dict()
    for block in range(3):
        state[f"blocks.{block}.attn.relative_position_index"] = torch.zeros(7, 7, dtype=torch.int64)
    save_torch(state, folder / "model.safetensors")
    source = read_checkpoint(folder)
    assert source.config.image_size == (32, 48)
    assert source.notes == (
        "left out 3 tensors that are no part of the encoder: " + ", ".join(list(state)[-3:]),
    )


@pytest.mark.parametrize(
    ("arguments", "bias", "positions"),
    [
        ({"use_shared_rel_pos_bias": True}, True, "none"),
        ({"use_abs_pos_emb": True, "init_values": 0.1}, False, "learned"),
    ],
)
def test_a_beit_without_tables_of_its_blocks(arguments, bias, positions, tmp_path):
    """One that all blocks share, or none: then its config.json tells it from an EVA."""
    arguments = {"use_rel_pos_bias": False, "use_abs_pos_emb": False, **arguments}
    folder = saved(tmp_path / "timm", small("beit_base_patch16_224", **arguments))
    source = read_checkpoint(folder)
    assert source.dialect.name == "timm-beit"
    assert (source.config.rel_pos_bias, source.config.pos_embed) == (bias, positions)
    done = convert_verified(source, to="parity", out=tmp_path / "own.safetensors")
    assert done.verification.problem == ""


def test_a_beit_that_adds_two_tables_is_refused(tmp_path):
    arguments = {"use_shared_rel_pos_bias": True}
    folder = saved(tmp_path / "timm", small("beit_base_patch16_224", **arguments))
    with pytest.raises(ConfigError, match="whose sum is no table of its own"):
        read_checkpoint(folder)


def test_the_layer_before_the_head_of_older_timm(tmp_path):
    model = small("vit_tiny_patch16_224")
    state = model.state_dict()
    state["pre_logits.fc.weight"], state["pre_logits.fc.bias"] = torch.ones(48, 48), torch.ones(48)
    path = tmp_path / "old.pth"
    torch.save(state, path)
    given = {"num_heads": 6, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "block": "pre_norm"}
    source = read_checkpoint(path, given={**given, "image_size": (32, 48)})
    assert source.config.head_hidden == 48


def test_pre_logits_of_2021(tmp_path):
    """timm's models for 21k classes had a tanh layer before the head, which today's have not."""
    model = timm.create_model("test_vit", num_classes=5, img_size=64)
    width = model.embed_dim
    generator = torch.Generator().manual_seed(0)
    hidden = {
        "pre_logits.fc.weight": torch.randn(width, width, generator=generator),
        "pre_logits.fc.bias": torch.randn(width, generator=generator),
    }
    torch.save({**model.state_dict(), **hidden}, tmp_path / "old.pth")
    source = read_checkpoint(tmp_path / "old.pth", like="test_vit")
    assert source.config == PRESETS["test_vit"].replace(num_classes=5, image_size=64, head_hidden=width)
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    with pytest.raises(ConfigError, match=r"head_hidden = 64 .*--num-classes 0 takes it off"):
        convert(source, to="timm", out=tmp_path / "timm")
    done = convert(source, to="timm", out=tmp_path / "timm", num_classes=0)
    said = "head of 5 classes taken off; tanh layer of 64 (pooler, pre_logits) taken off"
    assert done.notes == (said,)
    assert read_checkpoint(tmp_path / "timm").hops[-1].done == (said,)
    again = timm.create_model(f"local-dir:{tmp_path / 'timm'}", pretrained=True).eval()
    model.reset_classifier(0)
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 64, 64))).float()
    assert torch.equal(again(images), model.eval()(images))
