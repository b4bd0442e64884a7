"""Other libraries' names for models that timm and Google have: Scenic's, OpenMMLab's, EVA-CLIP's.

None of these libraries installs here. A model of timm or of Linen is saved under their names, by the
renamings that their own loaders and their readers have, and read; EVA-CLIP's are read by timm, too.
"""

from typing import Any

import flax.serialization
import numpy as np
import pytest
import torch
from flax import traverse_util

from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import assert_same_tensors, images_for, redraw
from tests.support.linen_vit import LINEN, LinenViT
from tests.support.tiny import TINY, error
from vit_config import ConfigError, Rope, WeightsError
from vit_config.errors import UnstatedError

timm = import_timm()
SIZES = {"embed_dim": 30, "depth": 3, "num_heads": 5, "img_size": (21, 21), "patch_size": 7}
STATED = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu", "pool": "class"}


def model_of(name, **options) -> Any:
    """A model of timm, drawn anew in float64."""
    torch.manual_seed(0)
    return redraw(timm.create_model(name, **{**SIZES, **options}))


def renamed(state, renames):
    """A state dict with stretches of its names replaced."""
    respelled = {}
    for name, value in state.items():
        for old, new in renames:
            name = name.replace(old, new)
        respelled[name] = value
    return respelled


def read_right(path, model, back, **reading):
    """The file's function is the model's, and the file is written again as it was."""
    source = read_checkpoint(path, **reading)
    convert(source, to="parity", out=path.parent / "own.safetensors")
    images = torch.from_numpy(images_for(source.config))
    with torch.no_grad():
        twin = load(path.parent / "own.safetensors", framework="torch").model
        assert error(twin(images).logits.numpy(), model(images).numpy()) <= 1e-12
    convert(path.parent / "own.safetensors", to=source.dialect.name, out=back)
    again = read_checkpoint(back, **reading)
    if "head.fc.weight" not in source.tensors:  # which is not written, but read
        assert_same_tensors(again.tensors, source.tensors)
    assert again.config == source.config
    return source


RENAMES = [
    ("patch_embed.proj", "patch_embed.projection"), ("blocks.", "layers."), ("norm1", "ln1"),
    ("norm2", "ln2"), ("mlp.fc1", "ffn.layers.0.0"), ("mlp.fc2", "ffn.layers.1"), ("fc_norm.", "ln2."),
    ("ls1.gamma", "attn.gamma1.weight"), ("ls2.gamma", "ffn.gamma2.weight"), ("norm_pre", "pre_norm"),
]  # fmt: skip


def saved_as_openmmlab(model, path, head="head.layers.head.", renames=()):
    state = renamed(model.state_dict(), [*RENAMES, *renames])
    tensors = {}
    for name, value in state.items():
        name = f"ln1{name.removeprefix('norm')}" if name.startswith("norm.") else name
        is_head = name.startswith("head.")
        tensors[name.replace("head.", head) if is_head else f"backbone.{name}"] = value
    torch.save({"meta": {"epoch": 1}, "state_dict": tensors}, path)
    return path


@pytest.mark.parametrize(
    ("options", "head", "given"),
    [
        ({"init_values": 0.1}, "head.layers.head.", {}),
        ({"global_pool": "avg"}, "head.fc.", {"pool": "mean"}),
        ({"num_classes": 0, "pre_norm": True}, "", {}),
    ],
)
def test_mmpretrain(options, head, given, tmp_path):
    model = model_of("vit_small_patch16_224", **{"num_classes": 4, **options})
    path = saved_as_openmmlab(model, tmp_path / "mm.pth", head)
    source = read_right(path, model, tmp_path / "back.pth", given={**STATED, **given})
    assert source.dialect.name == "mmpretrain"
    with pytest.raises(UnstatedError, match="cannot infer num_heads, norm_eps, act, pool"):
        read_checkpoint(path)


def test_mmsegmentation(tmp_path):
    """Its attention is PyTorch's own module, within one of its own."""
    inside = [
        ("attn.qkv.weight", "attn.attn.in_proj_weight"),
        ("attn.qkv.bias", "attn.attn.in_proj_bias"),
        ("attn.proj.", "attn.attn.out_proj."),
    ]
    model = model_of("vit_small_patch16_224", num_classes=0)
    path = saved_as_openmmlab(model, tmp_path / "mm.pth", renames=inside)
    assert read_right(path, model, tmp_path / "back.pth", given=STATED).dialect.name == "mmsegmentation"


EVA = [
    ("mlp.norm", "mlp.ffn_ln"), ("attn.norm", "attn.inner_attn_ln"), ("mlp.fc1_g", "mlp.w1"),
    ("mlp.fc1_x", "mlp.w2"), ("mlp.fc2", "mlp.w3"), ("q_proj.bias", "q_bias"), ("v_proj.bias", "v_bias"),
]  # fmt: skip


def test_eva_clip(tmp_path):
    """timm reads what is written; the tables of rotary positions in it are timm's."""
    name = "eva02_base_patch16_clip_224"
    sizes = {**SIZES, "embed_dim": 40, "num_classes": 6, "ref_feat_shape": (4, 4)}
    model = model_of(name, **sizes)
    state = renamed(model.state_dict(), EVA)
    torch.save({f"visual.{key}": value for key, value in state.items()}, tmp_path / "eva.pt")
    given = {"num_heads": 5, "block": "pre_norm", "rope": Rope(reference_grid=(4, 4))}
    back = tmp_path / "back.pt"
    source = read_checkpoint(tmp_path / "eva.pt", given=given)
    assert source.dialect.name == "eva-clip"
    assert source.config.k_bias is False
    convert(source, to="eva-clip", out=back)
    written = torch.load(back)
    again = timm.create_model(name, **sizes).double().eval()
    again.load_state_dict(timm.models.eva.checkpoint_filter_fn(dict(written), again))
    images = torch.from_numpy(images_for(source.config))
    convert(source, to="parity", out=tmp_path / "own.safetensors")
    twin = load(tmp_path / "own.safetensors", framework="torch").model
    with torch.no_grad():
        assert error(again(images).numpy(), model(images).numpy()) == 0
        assert error(twin(images).logits.numpy(), model(images).numpy()) <= 1e-6  # timm's float32 angles
    sines, cosines = model.rope.get_embed().chunk(2, -1)
    for leaf, angles in {"sin": sines, "cos": cosines}.items():
        for where in ("rope", "blocks.2.attn.rope"):
            assert error(written[f"{where}.freqs_{leaf}"].numpy(), angles.numpy()) <= 1e-6
    with pytest.raises(UnstatedError, match=r"cannot infer num_heads, rope, block"):
        read_checkpoint(tmp_path / "eva.pt")
    with pytest.raises(WeightsError, match=r"16x16 .preset eva02_base.*give another preset by --like"):
        read_checkpoint(tmp_path / "eva.pt", like=name)


def saved_by_scenic(path, **changes):
    """A train state, and the model in it."""
    model = LinenViT(TINY.replace(act="gelu_tanh", **changes), numbers=LINEN)
    flat = model.drawn()
    tree = {name.replace("head/", "output_projection/"): each for name, each in flat.items()}
    params = traverse_util.unflatten_dict(tree, sep="/")
    state = {"global_step": 3, "opt_state": {}, "params": params, "rng": np.zeros(2, np.uint32)}
    path.write_bytes(flax.serialization.msgpack_serialize(state))
    return model, flat


def test_scenic(tmp_path):
    path = tmp_path / "checkpoint_3"
    _, flat = saved_by_scenic(path)
    source = read_checkpoint(path)
    assert (source.dialect.name, source.config.pool) == ("scenic", "class")
    convert(source, to="google-linen", out=tmp_path / "google.npz")
    written = np.load(tmp_path / "google.npz")
    for name, each in flat.items():
        np.testing.assert_array_equal(written[name], each)
    convert(source, to="scenic", out=tmp_path / "back.msgpack")
    assert_same_tensors(read_checkpoint(tmp_path / "back.msgpack").tensors, source.tensors)


def test_how_scenic_pools_patches_is_asked_for(tmp_path):
    """Their mean, sum and maximum have one file."""
    saved_by_scenic(tmp_path / "checkpoint_3", class_token=False, pool="mean")
    with pytest.raises(UnstatedError, match="cannot infer pool"):
        read_checkpoint(tmp_path / "checkpoint_3")
    assert read_checkpoint(tmp_path / "checkpoint_3", given={"pool": "mean"}).config.pool == "mean"
    with pytest.raises((ConfigError, WeightsError), match="pool"):
        read_checkpoint(tmp_path / "checkpoint_3", given={"pool": "class"})
