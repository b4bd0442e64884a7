"""Files in which more than the schema is unsure: the order of axes, whose config it is, whose head."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.cli import main
from parity.porting.formats.base import Container, Stored
from parity.porting.opening.opened import Opened
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.recognition.questions import HOLDERS
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import ConfigError, WeightsError, preset
from vit_config.errors import OtherModelError, UnstatedError
from vit_config.parameters import parameters

import_timm()
import transformers  # noqa: E402

CFG = TINY.replace(patch_size=(6, 6), image_size=(18, 12), depth=2, layer_scale=1.0)
GIVEN = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "image_size": CFG.image_size}
PATCHES = "patch_embed.proj.weight"
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
    "image_size": 12, "patch_size": 4,
}  # fmt: skip


@pytest.fixture
def state():
    """timm's names."""
    return {name: torch.from_numpy(each) for name, each in arrays_of(CFG).items()}


def channels_last(state):
    return {**state, PATCHES: state[PATCHES].permute(0, 2, 3, 1).contiguous()}


def test_what_mlx_says_of_its_axes_is_believed(state, tmp_path):
    save_file(channels_last(state), tmp_path / "mlx.safetensors", metadata={"format": "mlx"})
    checkpoint = read_checkpoint(tmp_path / "mlx.safetensors", given=GIVEN)
    assert (checkpoint.config.in_channels, checkpoint.config.patch_size) == (3, (6, 6))
    np.testing.assert_array_equal(checkpoint.arrays[PATCHES].load(), state[PATCHES].numpy())
    assert f"read {PATCHES} (30, 6, 6, 3) with its channels last, as format = mlx" in checkpoint.notes[0]


def test_where_nothing_says_the_order_of_axes_it_is_asked_for(state, tmp_path):
    save_file(channels_last(state), tmp_path / "bare.safetensors")
    with pytest.raises(
        UnstatedError, match=r"6 channels in patches of 6x3, or .* 3 channels in patches of 6x6"
    ):
        read_checkpoint(tmp_path / "bare.safetensors", given=GIVEN)
    checkpoint = read_checkpoint(tmp_path / "bare.safetensors", given={**GIVEN, "in_channels": 3})
    np.testing.assert_array_equal(checkpoint.arrays[PATCHES].load(), state[PATCHES].numpy())
    tall = {**GIVEN, "in_channels": 6, "image_size": (18, 6)}
    assert read_checkpoint(tmp_path / "bare.safetensors", given=tall).config.patch_size == (6, 3)


ANSWERS = {**GIVEN, "in_channels": 3, "block": "pre_norm", "rope": None}


@pytest.mark.parametrize("known", [(), ("image_size",), ("num_heads", "pool")])
def test_what_is_open_beside_the_axes_is_asked_for_in_one_sentence(known, state, tmp_path):
    path = tmp_path / "bare.safetensors"
    save_file(channels_last(state), path)
    with pytest.raises(UnstatedError, match=r"6 channels in patches of 6x3, or .*6x6") as caught:
        read_checkpoint(path, given={name: GIVEN[name] for name in known})
    asked = caught.value.fields
    assert asked[0] == "in_channels"
    assert {*asked, *known} >= {*GIVEN, "in_channels"}
    said = str(caught.value)
    assert f"give --set {' '.join(f'{name}={HOLDERS[name]}' for name in asked)}, or --like" in said
    answers = {name: ANSWERS[name] for name in (*asked, *known)}
    assert read_checkpoint(path, given=answers).config.patch_size == (6, 6)


def test_presets_of_either_order_of_axes_are_suggested(tmp_path):
    shapes = {name: each.shape for name, each in parameters(preset("vit_tiny_patch16_224")).items()}
    shapes[PATCHES] = (192, 16, 16, 3)
    bare = {name: Stored.of(np.broadcast_to(np.float32(0), shape)) for name, shape in shapes.items()}
    path = tmp_path / "bare.safetensors"
    with pytest.raises(UnstatedError, match=r"\(of these shapes: vit_tiny_patch16_224") as caught:
        read_checkpoint(Opened(Container(path, (path,), "safetensors", bare), path.name))
    assert caught.value.fields[:2] == ("in_channels", "num_heads")


def test_the_advice_on_open_axes_leads_to_a_file(state, tmp_path, capsys):
    source, out = tmp_path / "bare.safetensors", tmp_path / "out.safetensors"
    save_file(channels_last(state), source)
    convert = ["convert", str(source), str(out), "--to", "parity"]
    assert main(convert) == 2
    flags = re.search(r"give --set ([^,]*),", capsys.readouterr().err)[1].split()
    words = {**ANSWERS, "image_size": "18x12", "rope": "null"}
    said = [f"{name}={words[name]}" for name in (flag.partition("=")[0] for flag in flags)]
    assert main([*convert, "--set", *said[:2], "--dtype", "float32", "--set", *said[2:]]) == 0
    assert read_checkpoint(out).config.in_channels == 3


def test_a_dialect_and_fields_are_asked_for_at_once(state, tmp_path):
    odd = of_kind("npz", {**state, PATCHES: torch.ones(30, 6, 6, 6)}, tmp_path)
    with pytest.raises(UnstatedError, match=r"give --set act=ACT.*; give --dialect NAME") as caught:
        read_checkpoint(odd, given={name: each for name, each in GIVEN.items() if name != "act"})
    assert caught.value.fields[0] == "act"


@pytest.mark.parametrize("metadata", [{"format": "pt"}, None])
def test_axes_of_pytorch_are_as_they_are(state, metadata, tmp_path):
    save_file(state, tmp_path / "torch.safetensors", metadata=metadata)
    checkpoint = read_checkpoint(tmp_path / "torch.safetensors", given=GIVEN)
    assert not any("channels last" in note for note in checkpoint.notes)


@pytest.mark.parametrize("library", ["CLIP", "Siglip", "Dinov2", "ViT"])
def test_a_config_file_says_the_order_of_axes(library, tmp_path):
    kind = {"CLIP": "CLIPVision", "Siglip": "SiglipVision"}.get(library, library)
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(tmp_path / "torch")
    state = {name: each for name, each in model.state_dict().items()}
    (patches,) = (n for n, each in state.items() if each.ndim == 4 and "patch" in n)
    state[patches] = state[patches].permute(0, 2, 3, 1).contiguous()
    (tmp_path / "mlx").mkdir()
    save_file(state, tmp_path / "mlx/model.safetensors")
    (tmp_path / "mlx/config.json").write_text((tmp_path / "torch/config.json").read_text())
    expected, checkpoint = (read_checkpoint(tmp_path / name) for name in ("torch", "mlx"))
    assert checkpoint.config == expected.config
    np.testing.assert_array_equal(checkpoint.arrays[PATCHES].load(), expected.arrays[PATCHES].load())


RELATIVES = {
    "FlavaImage": "hf-vit",
    "Timesformer": None,
}
"""Models whose tensors are named as another's: the dialect that fits, or None where some do not."""


def saved(name, folder, **changes):
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **changes})
    getattr(transformers, f"{name}Model")(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", RELATIVES)
def test_a_dialect_is_advised_only_where_it_fits(name, tmp_path):
    folder, dialect = saved(name, tmp_path / "tower"), RELATIVES[name]
    with pytest.raises(WeightsError, match=r"config\.json says model_type") as caught:
        read_checkpoint(folder)
    if dialect is None:
        assert "--dialect" not in str(caught.value)
        assert "tensors are unknown" in str(caught.value)
    else:
        assert f"give --dialect {dialect} if" in str(caught.value)
        checkpoint = read_checkpoint(folder, dialect=dialect)
        assert checkpoint.origins["act"] == checkpoint.origins["norm_eps"] == "config.json"
        assert "took the entries of config.json" in checkpoint.notes[0]


def test_what_contradicts_a_relatives_config_is_refused(tmp_path):
    folder = saved("FlavaImage", tmp_path / "tower")
    with pytest.raises(ConfigError, match=r"act = gelu \(config.json\), but relu \(--set\)"):
        read_checkpoint(folder, dialect="hf-vit", given={"act": "relu"})
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_act"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnstatedError, match="cannot infer act;"):  # a default is the other library's
        read_checkpoint(folder, dialect="hf-vit")


HEADS = {
    "a perceptron": ("", {"head.0.weight": (9, 30), "head.0.bias": (9,), "head.3.weight": (7, 9)}),
    "beside a backbone": ("backbone.", {"classifier.weight": (7, 30), "classifier.bias": (7,)}),
    "of a Lightning module": ("model.encoder.", {"model.fc.1.weight": (7, 60)}),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_trained_classifier_is_dropped_only_if_the_user_says_so(case, state, tmp_path):
    prefix, head = HEADS[case]
    trunk = {f"{prefix}{name}": each for name, each in state.items() if not name.startswith("head.")}
    content = {**trunk, **{name: torch.ones(shape) for name, shape in head.items()}}
    torch.save(content, tmp_path / "tuned.pth")
    source = read_checkpoint(tmp_path / "tuned.pth", given=GIVEN)
    assert source.unheld == tuple(head)
    with pytest.raises(UnstatedError, match=r"its classifier, .* --num-classes 0 takes it off"):
        convert(source, to="parity", out=tmp_path / "no.safetensors")
    assert not (tmp_path / "no.safetensors").exists()
    convert(source, to="parity", out=tmp_path / "yes.safetensors", num_classes=0)
    with pytest.raises(
        UnstatedError, match=r"give --set num_heads=N.*; its classifier, .* takes it off"
    ):
        convert(tmp_path / "tuned.pth", to="parity", out=tmp_path / "no.safetensors")  # one question
    again = read_checkpoint(tmp_path / "tuned.pth", given={**GIVEN, "num_classes": 0})
    convert(again, to="parity", out=tmp_path / "too.safetensors")


@pytest.mark.parametrize(
    "more",
    [
        {"momentum_encoder.head.0.weight": (9, 30), "head.0.weight": (9, 30)},
        {"dino_head.mlp.0.weight": (9, 30)},
        {"head.mlp.0.weight": (9, 30), "head.last_layer.weight_v": (9, 30)},
        {"lm_head.weight": (9, 30), "multi_modal_projector.linear_1.weight": (9, 30)},
        {"decode_head.conv.weight": (9, 30, 1, 1), "head.conv1.weight": (9, 30, 3, 3)},
    ],
)
def test_projectors_and_the_rest_of_a_host_are_no_classifiers(more, state, tmp_path):
    trunk = {f"encoder.{name}": each for name, each in state.items() if not name.startswith("head.")}
    content = {**trunk, **{name: torch.ones(shape) for name, shape in more.items()}}
    torch.save(content, tmp_path / "host.pth")
    assert read_checkpoint(tmp_path / "host.pth", given=GIVEN, part="encoder").unheld == ()


def test_a_spectrogram_transformer_of_its_own_code_is_called_what_it_is(state, tmp_path):
    names = {f"module.v.{name}": each for name, each in state.items() if not name.startswith("head.")}
    names |= {"module.v.dist_token": torch.ones(1, 1, 30), "module.mlp_head.0.weight": torch.ones(30)}
    torch.save({**names, "module.mlp_head.1.weight": torch.ones(7, 30)}, tmp_path / "ast.pth")
    with pytest.raises(WeightsError, match="is of an Audio Spectrogram Transformer"):
        read_checkpoint(tmp_path / "ast.pth", given=GIVEN)


def of_kind(kind, state, folder, **more):
    tensors = {name: Stored.of(each.numpy()) for name, each in state.items()}
    return Opened(Container(folder, (folder / f"weights.{kind}",), kind, tensors, **more), folder.name)


@pytest.mark.parametrize("shape", [(6, 6, 6), (4, 6, 4), (7, 5, 3)])
@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_axes_that_nothing_tells_apart_are_asked_for(shape, kind, state, tmp_path):
    odd = of_kind(kind, {**state, PATCHES: torch.ones(30, *shape)}, tmp_path)
    with pytest.raises(UnstatedError, match="channels") as caught:
        read_checkpoint(odd, given=GIVEN)
    answers = {(6, 6, 6): "--dialect NAME", (4, 6, 4): "--set patch_size=HxW"}
    assert answers.get(shape, "--set in_channels=N") in str(caught.value)


@pytest.mark.parametrize("kind", ["torch", "torch (legacy)", "TorchScript", "safetensors"])
def test_axes_that_a_format_fixes_are_not_asked_for(kind, state, tmp_path):
    metadata = {"format": "pt"} if kind == "safetensors" else {}
    path = of_kind(kind, {**state, PATCHES: torch.ones(30, 6, 6, 6)}, tmp_path, metadata=metadata)
    config = read_checkpoint(path, given={**GIVEN, "block": "pre_norm"}).config
    assert (config.in_channels, config.patch_size) == (6, (6, 6))


def test_the_answers_to_a_question_of_axes_are_taken(state, tmp_path):
    def read(shape, **given):
        odd = of_kind("npz", {**state, PATCHES: torch.ones(30, *shape)}, tmp_path)
        config = read_checkpoint(odd, given={**GIVEN, "block": "pre_norm", **given}).config
        return config.in_channels, config.patch_size

    assert read((4, 6, 4), patch_size=(6, 4), image_size=(18, 8)) == (4, (6, 4))
    assert read((4, 6, 4), patch_size=(4, 6), image_size=(12, 12)) == (4, (4, 6))
    assert read((7, 5, 3), in_channels=3, image_size=(21, 10)) == (3, (7, 5))
    assert read((7, 5, 3), in_channels=7, image_size=(15, 6)) == (7, (5, 3))


def test_axes_of_one_length_are_of_the_library_that_the_user_names(state, tmp_path):
    odd = of_kind("npz", {**state, PATCHES: torch.ones(30, 6, 6, 6)}, tmp_path)
    config = read_checkpoint(odd, given={**GIVEN, "block": "pre_norm"}, dialect="timm").config
    assert (config.in_channels, config.patch_size) == (6, (6, 6))


@pytest.mark.parametrize(
    ("name", "entries", "there"),
    [
        ("Yolos", {"num_detection_tokens": 3, "image_size": (12, 12)}, "embeddings.detection_tokens"),
        ("XCLIPVision", {"mit_num_attention_heads": 3}, "embeddings.class_embedding"),
    ],
)
def test_no_dialect_is_advised_that_lacks_some_of_the_tensors(name, entries, there, tmp_path):
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **entries})
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path)
    with pytest.raises(OtherModelError, match=rf"named as those of .*, but for [^|]*{there}") as caught:
        read_checkpoint(tmp_path)
    assert "--dialect" not in str(caught.value)


def test_a_quantiser_that_only_the_config_names_is_named(tmp_path):
    """Its tensors have names and types of its own, of which no pattern has to know."""
    config = transformers.ViTConfig(**SIZES)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    state = load_file(weights)
    name = "encoder.layer.1.output.dense.weight"
    state[f"{name}_packed"] = state.pop(name)[:, ::4].to(torch.int32)
    save_file(state, weights, metadata={"format": "pt"})
    path = tmp_path / "config.json"
    told = {**json.loads(path.read_text()), "quantization_config": {"quant_method": "packed-in-fours"}}
    path.write_text(json.dumps(told))
    with pytest.raises(
        OtherModelError, match=r"config.json says that it is quantised by packed-in-fours; save what"
    ):
        read_checkpoint(tmp_path)


def test_a_dialect_that_the_user_names_is_named_in_the_refusal(state, tmp_path):
    torch.save(state, tmp_path / "timm.pth")
    with pytest.raises(
        WeightsError, match="no Vision Transformer of transformers' ViT; its tensors are"
    ):
        read_checkpoint(tmp_path / "timm.pth", dialect="hf-vit")


def test_half_a_rope_leaves_the_rest_open(state, tmp_path):
    torch.save(state, tmp_path / "timm.pth")
    given = {name: each for name, each in GIVEN.items() if name != "act"}
    with pytest.raises(UnstatedError, match=r"--set rope=ROPE act=ACT.*; rope = .* leaves theta, axes,"):
        read_checkpoint(tmp_path / "timm.pth", given={**given, "rope": {"kind": "axial"}})


def test_a_tensor_that_a_dialect_has_not_names_the_dialect(state, tmp_path):
    torch.save({**state, "mask_token": torch.zeros(1, 1, 30)}, tmp_path / "masked.pth")
    with pytest.raises(WeightsError, match="ViT and DeiT, but for mask_token; give --dialect timm-vit"):
        read_checkpoint(tmp_path / "masked.pth", given=GIVEN)
    checkpoint = read_checkpoint(
        tmp_path / "masked.pth", dialect="timm-vit", given={**GIVEN, "block": "pre_norm"}
    )
    assert checkpoint.notes == ("left out 1 tensor that is no part of the encoder: mask_token",)
    torch.save({**state, "mask": torch.zeros(3)}, tmp_path / "extra.pth")
    with pytest.raises(WeightsError, match=r"1 tensor does not fit .* mask: unexpected$"):
        read_checkpoint(tmp_path / "extra.pth", given={**GIVEN, "block": "pre_norm"})


@pytest.mark.parametrize(
    ("entry", "value", "asked"),
    [
        ("num_attention_heads", None, "cannot infer num_heads; give --set num_heads=N"),
        ("num_attention_heads", [3, 3], "give --set num_heads=N; .* num_attention_heads = .3, 3., and"),
        (
            "hidden_act",
            ["gelu"],
            "give --set act=ACT; .* hidden_act = .'gelu'., and .*; act: gelu, gelu_",
        ),
        ("layer_norm_eps", None, "cannot infer norm_eps; give --set norm_eps=EPS"),
    ],
)
def test_an_entry_without_a_value_is_asked_for(entry, value, asked, tmp_path):
    model = transformers.ViTModel(transformers.ViTConfig(**SIZES), add_pooling_layer=False)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, entry: value}))
    with pytest.raises(UnstatedError, match=asked) as refused:
        read_checkpoint(tmp_path)
    answers = {"num_heads": 3, "act": "gelu", "norm_eps": 1e-12}
    checkpoint = read_checkpoint(tmp_path, given={name: answers[name] for name in refused.value.fields})
    assert checkpoint.config.num_heads == 3
