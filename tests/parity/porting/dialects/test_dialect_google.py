"""Files of google-research/vision_transformer, both numberings, there and back."""

import numpy as np
import pytest
import torch

from parity.porting.dialects import dialects
from parity.porting.formats import open_container
from parity.porting.models.files import save
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.recognition.recognise import has_marks
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, prove, redraw
from tests.support.linen_vit import LINEN, PRE_LINEN, LinenViT, loaded
from tests.support.tiny import TINY, error
from vit_config import ConfigError, WeightsError
from vit_torch import ViT

CFG = TINY.replace(act="gelu_tanh")
HEADS = {
    "token": {},
    "gap": {"class_token": False, "pool": "mean"},
    "representation": {"head_hidden": 17},
    "headless": {"num_classes": 0},
    "two_channels": {"in_channels": 2},
}
FORMATS = {"google": PRE_LINEN, "google-linen": LINEN}


def saved(tmp_path, name="google", prefix="", **changes):
    """A model's file, the model, its parameters."""
    model = LinenViT(CFG.replace(**changes), numbers=FORMATS[name])
    parameters = model.drawn()
    path = tmp_path / "theirs.npz"
    np.savez(path, **{f"{prefix}{key}": value for key, value in parameters.items()})
    return path, model, parameters


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", FORMATS)
def test_there_and_back(tmp_path, name, head):
    path, model, parameters = saved(tmp_path, name, **HEADS[head])

    def reload(out):
        assert out.suffix == ".npz"
        return lambda images: model.logits(loaded(out), images)

    prove(
        path,
        lambda images: model.logits(parameters, images),
        to=name,
        out=tmp_path / "back.npz",
        reload=reload,
    )


def test_what_the_file_does_not_say_googles_code_decides(tmp_path):
    path, *_ = saved(tmp_path)

    checkpoint = read_checkpoint(path)

    assert checkpoint.config == CFG.replace(pos_embed_resize="bilinear_corners")
    assert checkpoint.origins["num_heads"] == "shapes"
    title = "google-research/vision_transformer"
    assert {checkpoint.origins[name] for name in ("act", "norm_eps", "pool")} == {f"code of {title}"}
    assert checkpoint.preprocess.mean == checkpoint.preprocess.std == (0.5, 0.5, 0.5)
    assert checkpoint.preprocess_origin == f"convention of {title}"


def test_a_convention_gives_way_to_what_the_user_says(tmp_path):
    path, *_ = saved(tmp_path)

    checkpoint = read_checkpoint(path, given={"act": "gelu"})  # as timm runs these weights

    assert (checkpoint.config.act, checkpoint.origins["act"]) == ("gelu", "given")


def test_means_are_not_made_up_for_other_channels(tmp_path):
    path, *_ = saved(tmp_path, in_channels=2)

    assert read_checkpoint(path).preprocess is None


@pytest.mark.parametrize("name", FORMATS)
def test_no_dialect_before_it_takes_it_for_its_own(tmp_path, name):
    path, *_ = saved(tmp_path, name)
    tensors = open_container(path).tensors

    assert next(each.name for each in dialects() if has_marks(each, tensors)) == name


@pytest.mark.parametrize("prefix", ["opt/target/", "params/"])
def test_wrappers_are_stripped(tmp_path, prefix):
    bare, *_ = saved(tmp_path)
    expected = read_checkpoint(bare).config
    path, _, parameters = saved(tmp_path, prefix=prefix)

    checkpoint = read_checkpoint(path)

    assert (checkpoint.dialect.name, checkpoint.config) == ("google", expected)
    value = checkpoint.arrays["blocks.2.mlp.fc2.weight"].load()
    theirs = parameters["Transformer/encoderblock_2/MlpBlock_3/Dense_1/kernel"]
    np.testing.assert_array_equal(value, theirs.T)


def test_a_hybrid_is_refused_by_name(tmp_path):
    path, _, parameters = saved(tmp_path)
    np.savez(path, **parameters, **{"conv_root/kernel": np.ones((7, 7, 3, 4))})

    with pytest.raises(WeightsError, match="conv_root/kernel is of a hybrid, whose tokens"):
        read_checkpoint(path)


def test_heads_that_are_mixed_up_are_refused(tmp_path):
    path, _, parameters = saved(tmp_path)
    name = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel"
    parameters[name] = parameters[name].reshape(30, 6, 5)
    np.savez(path, **parameters)

    with pytest.raises(WeightsError, match=r"Attention_1/query.*the file is inconsistent"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"act": "gelu"}, "act = gelu"),
        ({"register_tokens": 2}, "register_tokens = 2"),
        ({"pool": "mean"}, "a class token if that is pooled"),
        ({"layer_scale": 0.1}, "gamma is not one"),
    ],
)
def test_what_google_cannot_say_is_refused(tmp_path, changes, why):
    path = tmp_path / "own.safetensors"
    save(path, redraw(ViT(CFG.replace(**changes))))

    with pytest.raises(ConfigError, match=why):
        convert(path, to="google", out=tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("head", ["token", "gap"])
def test_timm_reads_what_is_written(tmp_path, head):
    """timm has a reader of its own for these files."""
    path, model, parameters = saved(tmp_path, **HEADS[head])
    convert(path, to="google", out=tmp_path / "back.npz")
    cfg, timm = model.cfg, import_timm()
    peer = timm.models.vision_transformer.VisionTransformer(
        img_size=cfg.image_size,
        patch_size=cfg.patch_size,
        embed_dim=cfg.hidden_size,
        depth=cfg.depth,
        num_heads=cfg.num_heads,
        mlp_ratio=cfg.mlp_dim / cfg.hidden_size,
        num_classes=cfg.num_classes,
        class_token=cfg.class_token,
        global_pool={"class": "token", "mean": "avg"}[cfg.pool],
        fc_norm=False,
        act_layer="gelu_tanh",
    )
    peer = peer.double().eval()

    peer.load_pretrained(str(tmp_path / "back.npz"))

    images = images_for(cfg)
    with torch.no_grad():
        assert error(peer(torch.from_numpy(images)), model.logits(parameters, images)) <= 1e-12
