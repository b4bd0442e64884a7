"""transformers' ViT and what spells its tensors alike, against the library itself."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import Logits, images_for, prove, redraw, twin_logits
from tests.support.hf_models import (
    CLASSES,
    MLP,
    SIZES,
    build,
    class_token,
    logits,
    outputs,
    reload,
    save,
    save_memory,
    transformers,
)
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError

ENTRIES = {**SIZES, **MLP}
VIT = ("ViTForImageClassification", "ViTConfig")
HEADS = {
    "hf-vit": (*VIT, {}),
    "hf-vit no qkv bias": (*VIT, {"qkv_bias": False}),
    "hf-vit tanh": (*VIT, {"hidden_act": "gelu_new"}),
    "hf-vit wide heads": (*VIT, {"head_dim": 8}),
    "hf-vit-msn": ("ViTMSNForImageClassification", "ViTMSNConfig", {}),
    "hf-ijepa": ("IJepaForImageClassification", "IJepaConfig", {}),
    "hf-deit": ("DeiTForImageClassification", "DeiTConfig", {}),
    "hf-deit with teacher": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", {}),
}
BODIES = {
    "hf-vit": ("ViTModel", "ViTConfig", {"pooler_output_size": 17}, logits),
    "hf-vit-msn": ("ViTMSNModel", "ViTMSNConfig", {}, class_token),
    "hf-deit": ("DeiTModel", "DeiTConfig", {}, logits),
}


def pooled_by_mean(model: torch.nn.Module) -> Logits:
    return outputs(model, lambda out: out.last_hidden_state.mean(1))


@pytest.mark.parametrize("case", HEADS)
def test_classifiers(case: str, tmp_path: Path) -> None:
    name, config, entries = HEADS[case]
    model = build(name, config, **ENTRIES, **CLASSES, **entries)
    strict = reload(auto=name) if "teacher" in case else reload()
    saved = save(model, tmp_path / "saved")
    prove(saved, logits(model), to=case.split()[0], out=tmp_path / "back", reload=strict)


@pytest.mark.parametrize("case", BODIES)
def test_bodies(case: str, tmp_path: Path) -> None:
    name, config, entries, pick = BODIES[case]
    model = build(name, config, **ENTRIES, **entries)
    saved = save(model, tmp_path / "saved")
    prove(saved, pick(model), to=case, out=tmp_path / "back", reload=reload(pick))


def test_body_without_pooler(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**ENTRIES)
    model = redraw(transformers.ViTModel(config, add_pooling_layer=False))
    strict = reload(class_token, "ViTModel", add_pooling_layer=False)
    saved = save(model, tmp_path / "saved")
    prove(saved, class_token(model), to="hf-vit", out=tmp_path / "back", reload=strict)


def test_ijepa_body(tmp_path: Path) -> None:
    model = build("IJepaModel", "IJepaConfig", **ENTRIES)
    saved = save(model, tmp_path / "saved")
    back = reload(pooled_by_mean)
    prove(saved, pooled_by_mean(model), to="hf-ijepa", out=tmp_path / "back", reload=back)


@pytest.mark.parametrize("name", ["ViTMAEModel", "ViTMAEForPreTraining"])
def test_mae(name: str, tmp_path: Path) -> None:
    """Without a mask; its tokens are shuffled, which the class token does not notice."""
    decoder = {"decoder_num_hidden_layers": 1, "decoder_hidden_size": 16, "decoder_intermediate_size": 8}
    square = {"image_size": 15, "patch_size": 5, "mask_ratio": 0.0, "decoder_num_attention_heads": 2}
    model = build(name, "ViTMAEConfig", **{**ENTRIES, **square}, **decoder)
    saved = save(model, tmp_path / "saved")
    encoder = model.get_submodule("vit") if name.endswith("PreTraining") else model
    prove(
        saved, class_token(encoder), to="hf-vit-mae", out=tmp_path / "back", reload=reload(class_token)
    )
    assert bool(read_checkpoint(saved).notes) == name.endswith("PreTraining")


@pytest.mark.parametrize("case", HEADS)
def test_names_in_memory(case: str, tmp_path: Path) -> None:
    name, config, entries = HEADS[case]
    model = build(name, config, **ENTRIES, **CLASSES, **entries)
    convert(save_memory(model, tmp_path / "saved"), to="parity", out=tmp_path / "own.safetensors")
    _same(model, tmp_path / "own.safetensors")


def test_body_that_kept_its_prefix(tmp_path: Path) -> None:
    """A base model whose names still have the prefix, as those taken out of a classifier have."""
    model = build("ViTMSNModel", "ViTMSNConfig", **ENTRIES)
    saved = save(model, tmp_path / "saved")
    tensors = load_file(saved / "model.safetensors")
    save_file({f"vit.{name}": each for name, each in tensors.items()}, saved / "model.safetensors")
    assert read_checkpoint(saved).dialect.name == "hf-vit-msn"


def test_blocks_at_the_root(tmp_path: Path) -> None:
    """What the library writes of MSN's classifier: blocks outside of the model they are part of."""
    model = build("ViTMSNForImageClassification", "ViTMSNConfig", **ENTRIES, **CLASSES)
    saved = save(model, tmp_path / "saved")
    assert "encoder.layer.0.layernorm_before.weight" in load_file(saved / "model.safetensors")
    convert(saved, to="hf-vit-msn", out=tmp_path / "back")
    names = load_file(tmp_path / "back" / "model.safetensors")
    assert "vit.encoder.layer.0.layernorm_before.weight" in names


def test_a_classifier_does_not_look_at_a_pooler(tmp_path: Path) -> None:
    model = build(*VIT, **ENTRIES, **CLASSES)
    saved = save(model, tmp_path / "saved")
    tensors = load_file(saved / "model.safetensors")
    tensors |= {"vit.pooler.dense.weight": torch.ones(30, 30), "vit.pooler.dense.bias": torch.ones(30)}
    save_file(tensors, saved / "model.safetensors")
    source = read_checkpoint(saved)
    assert source.config.head_hidden is None
    assert "left out 2 tensors" in source.notes[0]
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    _same(model, tmp_path / "own.safetensors")


def test_old_config_files_leave_defaults_out(tmp_path: Path) -> None:
    model = build(*VIT, **ENTRIES, **CLASSES)
    saved = save(model, tmp_path / "saved")
    content = json.loads((saved / "config.json").read_text())
    for name in ("layer_norm_eps", "hidden_act", "qkv_bias", "num_channels", "pooler_act", "dtype"):
        del content[name]
    (saved / "config.json").write_text(json.dumps(content))
    cfg = read_checkpoint(saved).config
    assert (cfg.norm_eps, cfg.act, cfg.in_channels) == (1e-12, "gelu", 3)


def test_without_a_config_file_what_is_unknown_is_asked_for(tmp_path: Path) -> None:
    model = build(*VIT, **ENTRIES, **CLASSES)
    saved = save(model, tmp_path / "saved")
    (saved / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"num_heads.*norm_eps.*act.*image_size"):
        read_checkpoint(saved)


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("hidden_act", "gelu_fast", "hidden_act = 'gelu_fast' is none of gelu, "),
        ("pooler_act", "relu", "pooler_act = 'relu', but a schema supports only 'tanh'"),
        ("image_size", "large", "image_size = 'large'"),
        ("patch_size", [7, 5, 3], "patch_size = "),
    ],
)
def test_refuses_what_no_schema_says(entry: str, value: object, said: str, tmp_path: Path) -> None:
    saved = _changed(tmp_path, **{entry: value})
    with pytest.raises(ConfigError, match=r"config\.json: ") as caught:
        read_checkpoint(saved)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    saved = _changed(tmp_path, hidden_size=36)
    with pytest.raises(WeightsError, match=r"hidden_size = 30 \(shapes\), but 36 \(config.json"):
        read_checkpoint(saved)
    (tmp_path / "other").mkdir()
    saved = _changed(tmp_path / "other", id2label={"0": "one"})
    with pytest.raises(WeightsError, match=r"num_classes = 3 \(shapes\), but 1"):
        read_checkpoint(saved)


def _changed(folder: Path, **entries: object) -> Path:
    saved = save(build(*VIT, **ENTRIES, **CLASSES), folder / "saved")
    content = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**content, **entries}))
    return saved


def _same(model: torch.nn.Module, own: Path) -> None:
    images = images_for(read_checkpoint(own).config)
    for actual in twin_logits(own, images).values():
        assert error(actual, logits(model)(images)) <= 1e-12
