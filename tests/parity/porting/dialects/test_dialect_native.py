"""The authors' own files of DeiT, DeiT III and MAE: their names on timm's models, which are equal."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from evidence.timm_sweep import peer
from evidence.timm_sweep.architecture import redraw_model
from parity.porting.dialects import dialects, find_dialects
from parity.porting.opening.opened import open_checkpoint
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.recognition.recognise import find
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import prove, redraw
from vit_config import PRESETS, ConfigError, Preprocess, ViTConfig, WeightsError

peer.import_timm()
SIZES = {"embed_dim": 192, "num_heads": 3, "depth": 3, "img_size": 48, "num_classes": 7}
HEADS = {"num_heads": 3}


def small(name, **changes):
    return redraw(peer.create_float64(name, **{**SIZES, **changes}))


def logits_of(model):
    def logits(images):
        with torch.no_grad():
            return model(torch.from_numpy(images)).numpy()

    return logits


def deit3_names(state):
    """models_v2.py keeps each gain in the block itself."""
    return {
        name.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): x
        for name, x in state.items()
    }


def same_names(state):
    return state


def published(path, state, **more):
    """A file as the authors' scripts write it."""
    torch.save({"model": state, **more}, path)
    return path


CASES = {
    "deit3": ("deit3_small_patch16_224", {}, deit3_names, {}),
    "deit3, no head": ("deit3_small_patch16_224", {"num_classes": 0}, deit3_names, {}),
    "deit": ("deit_tiny_patch16_224", {}, same_names, {"dialect": "deit"}),
    "deit distilled": ("deit_tiny_distilled_patch16_224", {}, same_names, {"dialect": "deit"}),
    "mae, pretrained encoder": (
        "vit_tiny_patch16_224",
        {"num_classes": 0},
        same_names,
        {"dialect": "mae"},
    ),
    "mae, fine-tuned": ("vit_tiny_patch16_224", {"global_pool": "avg"}, same_names, {"dialect": "mae"}),
    "mae, linear probe": ("vit_tiny_patch16_224", {}, same_names, {"dialect": "mae"}),
}


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(case, tmp_path):
    name, changes, spell, reading = CASES[case]
    model = small(name, **changes)
    state = spell(model.state_dict())
    path = published(tmp_path / "theirs.pth", state)

    def reload(out):
        """What ``model.load_state_dict(checkpoint["model"])`` of their scripts does."""
        tensors = torch.load(out, weights_only=True)
        assert list(tensors) == ["model"]
        back = dict(zip(state, model.state_dict(), strict=True))
        again = small(name, **changes)
        again.load_state_dict({back[key]: value for key, value in tensors["model"].items()}, strict=True)
        return logits_of(again)

    prove(
        path,
        logits_of(model),
        to=case.split()[0].rstrip(","),
        out=tmp_path / "back.pth",
        reload=reload,
        given=HEADS,
        **reading,
    )


def test_deit3_is_told_by_its_gains_and_its_wrapper(tmp_path):
    state = deit3_names(small("deit3_small_patch16_224").state_dict())
    path = published(tmp_path / "theirs.pth", state, args=Namespace(model="deit_tiny_patch16_LS"))
    source = read_checkpoint(path, given=HEADS)
    assert source.dialect.name == "deit3"
    assert source.config.pos_embed_prefix == "none"
    assert source.origins["norm_eps"] == "code of DeiT III"
    assert source.preprocess == Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    torch.save(state, tmp_path / "bare.pth")  # may as well be timm's RoPE-ViT
    with pytest.raises(ConfigError, match=r"cannot infer .*rope"):
        read_checkpoint(tmp_path / "bare.pth")
    again = read_checkpoint(tmp_path / "bare.pth", dialect="deit3", given=HEADS)
    assert again.config == source.config


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("vit_tiny_patch16_224", "timm-vit"),
        ("eva02_tiny_patch14_224", "timm-eva"),
        ("eva02_base_patch14_224", "timm-eva-split"),
        ("beit_base_patch16_224", "timm-beit"),
        ("vit_base_patch16_dinov3", "timm-eva"),
        ("vit_base_patch16_rope_mixed_ape_224", "timm-eva"),
    ],
)
def test_other_models_under_the_same_key_are_not_theirs(tmp_path, name, spelling):
    model = peer.create_abstract(name, depth=3)
    state = {key: torch.zeros(value.shape) for key, value in model.state_dict().items()}
    path = published(tmp_path / "theirs.pth", state)
    assert find(open_checkpoint(path), dialects()).dialect.name == spelling


def test_the_decoder_of_mae_is_left_out(tmp_path):
    model = small("vit_tiny_patch16_224", num_classes=0)
    more = {"mask_token": torch.ones(1, 1, 96), "decoder_pos_embed": torch.ones(1, 10, 96)}
    more |= {"decoder_embed.weight": torch.ones(96, 192), "decoder_blocks.0.norm1.bias": torch.ones(96)}
    args = Namespace(model="mae_vit_large_patch16", input_size=224, norm_pix_loss=True)
    path = published(tmp_path / "theirs.pth", {**model.state_dict(), **more}, args=args, epoch=799)
    source = read_checkpoint(path, given=HEADS)
    assert source.dialect.name == "mae"
    assert source.notes == (
        "stripped 'model' from every name",
        "left out 4 tensors that are no part of the encoder: mask_token, decoder_pos_embed,"
        " decoder_embed.weight, decoder_blocks.0.norm1.bias",
    )
    prove(path, logits_of(model), to="mae", out=tmp_path / "back.pth", given=HEADS)


def test_deits_own_training_records_say_the_architecture(tmp_path):
    """The names of their main.py are timm's."""
    model = peer.create_abstract("deit_tiny_patch16_224", num_classes=5, img_size=32)
    state = {key: torch.zeros(value.shape) for key, value in model.state_dict().items()}
    args = Namespace(model="deit_tiny_patch16_224", input_size=32, nb_classes=5)
    path = published(tmp_path / "checkpoint.pth", state, args=args, epoch=3)
    assert read_checkpoint(path).config == PRESETS["deit_tiny_patch16_224"].replace(
        num_classes=5, image_size=32
    )


@pytest.mark.parametrize(("width", "heads"), [(48, 3), (192, 3), (192, 12), (384, 12)])
def test_heads_are_asked_for_and_what_is_said_is_taken(width, heads, tmp_path):
    """The authors' own model of a width says nothing of other people's: MAE-Lite has 12 heads at 192."""
    model = peer.create_abstract("deit3_small_patch16_224", **{**SIZES, "embed_dim": width})
    state = {key: torch.zeros(value.shape) for key, value in model.state_dict().items()}
    path = published(tmp_path / "theirs.pth", deit3_names(state))
    with pytest.raises(ConfigError, match="cannot infer num_heads; give --set num_heads=N"):
        read_checkpoint(path)
    assert read_checkpoint(path, given={"num_heads": heads}).config.num_heads == heads


def test_a_file_that_is_none_of_theirs(tmp_path):
    path = published(tmp_path / "theirs.pth", {"conv1.weight": torch.ones(3, 3)})
    for name, title in (("deit", "DeiT"), ("deit3", "DeiT III"), ("mae", "MAE")):
        with pytest.raises(WeightsError, match=f"no Vision Transformer of {title};"):
            read_checkpoint(path, dialect=name)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("mae", {"image_size": (48, 32)}, "is of a square, not of a grid of (3, 2)"),
        ("deit", {"layer_scale": 0.1, "qk_norm": True}, "qk_norm = true"),
        ("deit", {"norm_eps": 1e-5}, "norm_eps = 1e-05 .deit has 1e-06"),
        ("deit3", {"pool": "mean"}, "pool = mean .deit3 has class"),
        ("mae", {"distill_token": True}, "distill_token = true"),
        ("mae", {"pool": "mean"}, "not mean with final_norm = pre_pool"),
    ],
)
def test_what_their_models_cannot_be_is_refused(name, changes, said):
    sizes = {"image_size": 48, "hidden_size": 192, "depth": 3, "num_heads": 3, "mlp_dim": 77}
    cfg = ViTConfig(**{**sizes, **changes})
    (dialect,) = find_dialects(name)
    assert said.replace(" .", " (") in "; ".join(dialect.problems(cfg).values())


def test_timms_deit3_becomes_their_own_file(tmp_path):
    """And a position row of the class token goes into the token."""
    model = peer.create_float64("deit_tiny_patch16_224", **SIZES)
    model.load_state_dict(redraw_model(model, 0))
    torch.save(model.state_dict(), tmp_path / "timm.pth")
    given = {"num_heads": 3, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "block": "pre_norm"}
    convert(tmp_path / "timm.pth", given=given, to="deit3", out=tmp_path / "deit3.pth")
    checkpoint = read_checkpoint(tmp_path / "deit3.pth")
    assert checkpoint.dialect.name == "deit3"
    token = checkpoint.arrays["cls_token"].load()
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    np.testing.assert_array_equal(token, state["cls_token"] + state["pos_embed"][:, :1])
    np.testing.assert_array_equal(checkpoint.arrays["blocks.0.ls1.gamma"].load(), np.ones(192))
