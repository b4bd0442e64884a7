"""Facebook's own DINOv2 and DINOv3 checkpoints: modules with their names, there and back, and timm's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evidence.timm_sweep.peer import create_float64, float64, import_timm
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import assert_same_tensors, prove, redraw, twin_logits
from tests.support.dialect_torch import logits_of, save_torch, strictly
from tests.support.native_dino import Classifier, Dino
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError
from vit_config.rope import Rope

HEADS = {"num_heads": 5}
SIZE = {"image_size": 12}
V2 = [{}, {"registers": 4}, {"gated": True}, {"gated": True, "registers": 4}]
V3 = [
    {"registers": 4},
    {"registers": 4, "gated": True},
    {"registers": 4, "gated": True, "qkv_bias": False},
    {"masked": False},
]


def build(version: int, **options) -> Dino:
    return settled(redraw(Dino(version, **options)))


def settled(model: Dino) -> Dino:
    """Without values that nothing looks at: what stands for a masked patch, and biases under a mask."""
    model.mask_token.data.zero_()
    for block in model.blocks:
        if hasattr(block.attn.qkv, "bias_mask"):
            block.attn.qkv.bias.data *= block.attn.qkv.bias_mask
    return model


@pytest.mark.parametrize("options", V2, ids=str)
def test_dinov2(options, tmp_path):
    model = build(2, **options)
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="dinov2",
        out=tmp_path / "back.pth",
        reload=strictly(lambda: build(2, **options)),
        given=HEADS,
    )


@pytest.mark.parametrize("options", V3, ids=str)
def test_dinov3(options, tmp_path):
    """Its rotary buffer says how many heads there are, and is made anew on the way back."""
    model = build(3, **options)
    masked = options.get("masked", True) and options.get("qkv_bias", True)
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="dinov3-masked" if masked else "dinov3-unmasked",
        out=tmp_path / "back.pth",
        reload=strictly(lambda: build(3, **options)),
        given=SIZE,
    )


@pytest.mark.parametrize(("version", "to"), [(2, "dinov2"), (3, "dinov3-masked")])
def test_with_a_linear_classifier(version, to, tmp_path):
    def again() -> Classifier:
        model = redraw(Classifier(Dino(version, registers=2), 2))
        settled(model.backbone)
        return model

    model = again()
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to=to,
        out=tmp_path / "back.pth",
        reload=strictly(again),
        given={**HEADS, **SIZE},
    )


def test_what_is_known_of_a_published_dinov2(tmp_path):
    model = build(2, width=384, heads=6, depth=1, registers=4, image=42, patch=14)
    heads = {"num_heads": 6}
    path = save_torch(model, tmp_path)
    with pytest.raises(ConfigError, match="cannot infer num_heads; give --set num_heads=N"):
        read_checkpoint(path)
    source = read_checkpoint(path, given=heads)
    cfg = source.config
    assert (cfg.num_heads, cfg.image_size, cfg.norm_eps, cfg.act) == (6, (42, 42), 1e-6, "gelu")
    assert (cfg.pos_embed_prefix, cfg.pos_embed_resize) == ("class", "bicubic_antialias")
    assert cfg.dynamic_image_size
    assert source.origins["norm_eps"] == "code of DINOv2"
    assert source.preprocess.mean[0] == 0.485
    assert any("mask_token" in note for note in source.notes)
    without = save_torch(build(2, width=384, heads=6, depth=1), tmp_path)
    assert read_checkpoint(without, given=heads).config.pos_embed_resize == "dinov2"


@pytest.mark.parametrize("per_chunk", [1, 2, 3])
def test_training_checkpoints_keep_blocks_in_chunks(per_chunk, tmp_path):
    """Blocks are numbered through: ``blocks.1.2.norm1`` is the third block."""
    model = build(2, registers=2)
    state = {}
    for name, value in model.state_dict().items():
        if name.startswith("blocks."):
            _, index, rest = name.split(".", 2)
            name = f"blocks.{int(index) // per_chunk}.{index}.{rest}"
        state[f"backbone.{name}"] = value
    torch.save({"teacher": state | {"dino_head.mlp.0.weight": torch.ones(1)}}, tmp_path / "chunks.pth")
    source = read_checkpoint(tmp_path / "chunks.pth", given=HEADS)
    plain = read_checkpoint(save_torch(model, tmp_path), given=HEADS)
    assert_same_tensors(source.arrays, plain.arrays)
    assert any("dino_head.mlp.0.weight" in note for note in source.notes)


def test_chunks_that_are_not_numbered_through_are_refused(tmp_path):
    state = build(2).state_dict()
    names = [name for name in state if name.startswith("blocks.")]
    for name in names:
        index, rest = name.split(".", 2)[1:]
        state[f"blocks.{index}.0.{rest}"] = state.pop(name)
    torch.save(state, tmp_path / "local.pth")
    with pytest.raises(WeightsError, match=r"blocks\.0\.norm1\.weight appears twice"):
        read_checkpoint(tmp_path / "local.pth", given=HEADS)
    for name in [name for name in state if name.startswith("blocks.")]:
        index = int(name.split(".")[1])
        value = state.pop(name)
        if index != 1:
            state[name.replace(".0.", f".{index}.", 1) if index else name] = value
    torch.save(state, tmp_path / "gap.pth")
    with pytest.raises(WeightsError, match="missing"):
        read_checkpoint(tmp_path / "gap.pth", given=HEADS)


def test_student_and_teacher_are_told_apart(tmp_path):
    model = build(2)
    both = {
        part: {f"backbone.{name}": value for name, value in model.state_dict().items()}
        for part in ("student", "teacher")
    }
    torch.save(both, tmp_path / "both.pth")
    with pytest.raises(ConfigError, match=r"several models.*choose by --part"):
        read_checkpoint(tmp_path / "both.pth", given=HEADS)
    source = read_checkpoint(tmp_path / "both.pth", given=HEADS, part="teacher")
    assert source.dialect.name == "dinov2"


def test_a_bias_under_the_mask_does_not_matter(tmp_path):
    model = redraw(Dino(3))
    assert model.blocks[0].attn.qkv.bias[40:80].abs().min() > 0
    images = np.random.default_rng(0).standard_normal((2, 3, 12, 12))
    convert(save_torch(model, tmp_path), to="parity", out=tmp_path / "own.safetensors", given=SIZE)
    for logits in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(logits, logits_of(model)(images)) < 1e-12


def test_periods_rounded_to_bfloat16_are_accepted_and_said(tmp_path):
    state = build(3, width=60).state_dict()
    exact = state["rope_embed.periods"]
    state["rope_embed.periods"] = exact.bfloat16().double()
    torch.save(state, tmp_path / "rounded.pth")
    source = read_checkpoint(tmp_path / "rounded.pth", given=SIZE)
    assert any("rope_embed.periods" in note and "rounded" in note for note in source.notes)
    state["rope_embed.periods"] = exact * 1.02
    torch.save(state, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=r"rope_embed\.periods is not what DINOv3 computes"):
        read_checkpoint(tmp_path / "other.pth", given=SIZE)


def test_another_base_of_the_periods_can_be_given(tmp_path):
    state = build(3).state_dict()
    state["rope_embed.periods"] = 50.0 ** (torch.arange(2) / 2).double()
    torch.save(state, tmp_path / "fifty.pth")
    rope = Rope(kind="centered", theta=50.0, pairs="half")
    source = read_checkpoint(tmp_path / "fifty.pth", given={**SIZE, "rope": rope})
    assert source.config.rope.theta == 50.0


def test_norms_of_their_own(tmp_path):
    """Small crops have a norm in training that nobody uses later; patches may have another than the
    class token, which a schema cannot say."""
    state = build(3, registers=4).state_dict()
    state |= {"local_cls_norm.weight": state["norm.weight"], "local_cls_norm.bias": state["norm.bias"]}
    torch.save(state, tmp_path / "local.pth")
    source = read_checkpoint(tmp_path / "local.pth", given=SIZE)
    assert any("local_cls_norm.weight" in note for note in source.notes)
    torch.save({**state, "cls_norm.weight": state["norm.weight"]}, tmp_path / "untied.pth")
    with pytest.raises(WeightsError, match=r"cls_norm\.weight is of a model that has another norm"):
        read_checkpoint(tmp_path / "untied.pth", given=SIZE)


@pytest.mark.parametrize(
    ("version", "name", "options"),
    [
        (2, "vit_small_patch14_dinov2", {}),
        (2, "vit_small_patch14_reg4_dinov2", {"registers": 4}),
        (3, "vit_small_patch16_dinov3_qkvb", {"registers": 4}),
        (3, "vit_small_plus_patch16_dinov3_qkvb", {"registers": 4, "gated": True}),
    ],
)
def test_equal_to_what_timm_makes_of_the_same_file(version, name, options, tmp_path):
    """timm reads these files too, and its model is the module that the others are compared with."""
    timm = import_timm()
    model = build(version, **options)
    changes = {"img_size": 12, "patch_size": 3, "embed_dim": 40, "depth": 3, "num_heads": 5}
    peer = create_float64(name, **changes, mlp_ratio=24 / 40, num_classes=0, global_pool="token")
    module = timm.models.vision_transformer if version == 2 else timm.models.eva
    state = module.checkpoint_filter_fn(dict(model.state_dict()), peer)
    state.pop("mask_token", None)
    peer.load_state_dict(state, strict=True)
    with float64():
        images = np.random.default_rng(0).standard_normal((2, 3, 12, 12))
        assert error(logits_of(peer)(images), logits_of(model)(images)) < 1e-12


def test_what_they_cannot_say(tmp_path):
    """Each has positions of its own kind, and gates of certain widths."""
    convert(save_torch(build(2), tmp_path), to="parity", out=tmp_path / "own.safetensors", given=HEADS)
    with pytest.raises(ConfigError, match="pos_embed = learned"):
        convert(tmp_path / "own.safetensors", to="dinov3", out=tmp_path / "no.pth")
    with pytest.raises(WeightsError, match="its gated MLP has a multiple of 8 as its width"):
        read_checkpoint(save_torch(build(2, gated=True, hidden=22), tmp_path), given=HEADS)
