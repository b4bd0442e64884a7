"""Names and forms in which users keep a model that is read: OpenVLA, Prithvi, MaxText, weight_norm."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn.utils import parametrizations, weight_norm

import parity
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of
from tests.support.dialect_proof import redraw
from tests.support.hf_models import transformers
from tests.support.tiny import TINY, error
from vit_config import WeightsError, write_weights

GIVEN = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "block": "pre_norm",
         "image_size": TINY.image_size}  # fmt: skip
SIZES = {"embed_dim": 30, "depth": 3, "num_heads": 5, "img_size": (21, 15), "patch_size": (7, 5)}
timm = import_timm()


def of_timm(name="vit_tiny_patch16_224", classes=0, **options):
    return redraw(timm.create_model(name, num_classes=classes, **{**SIZES, **options}))


def drawn(model):
    """The model with lengths that are not those of its directions."""
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(1 + 0.3 * torch.rand(each.shape, generator=torch.Generator().manual_seed(1)))
    return model


def images(height=21, width=15):
    return torch.randn(
        2, 3, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )


def proven(model, loaded, limit=1e-12):
    batch = images()
    with torch.no_grad():
        assert error(loaded.model.double().logits(batch), model.double()(batch)) <= limit


def test_openvla(tmp_path):
    """Its layer scale is called scale_factor; its config.json names both towers."""
    model = of_timm("vit_large_patch14_reg4_dinov2", patch_size=(7, 5))
    state = {n.replace("gamma", "scale_factor"): each for n, each in model.state_dict().items()}
    bare = tmp_path / "bare.pth"
    torch.save(state, bare)
    given = {**GIVEN, "rope": None}
    loaded = parity.load(bare, framework="torch", given=given)
    proven(model, loaded)
    back = tmp_path / "back"
    convert(read_checkpoint(bare, given=given), to="timm", out=back)
    assert not any("scale_factor" in name for name in read_checkpoint(back).tensors)


def test_the_towers_of_openvla_are_those_that_its_config_names(tmp_path):
    names = ["vit_small_patch14_reg4_dinov2.lvd142m", "vit_base_patch16_siglip_224.webli"]
    folder = tmp_path / "openvla"
    folder.mkdir()
    with torch.device("meta"):
        models = [timm.create_model(n.partition(".")[0], num_classes=0) for n in names]
    tensors = {
        f"vision_backbone.{tower}.{n.replace('gamma', 'scale_factor')}": torch.zeros(each.shape)
        for tower, model in zip(("featurizer", "fused_featurizer"), models, strict=True)
        for n, each in model.state_dict().items()
    }
    save_file(
        {**tensors, "language_model.embed.weight": torch.zeros(3, 2)}, folder / "model.safetensors"
    )
    config = {"model_type": "openvla", "timm_model_ids": names, "timm_override_act_layers": [None, None]}
    (folder / "config.json").write_text(json.dumps(config))
    first, second = (
        read_checkpoint(folder, part=f"vision_backbone.{tower}")
        for tower in ("featurizer", "fused_featurizer")
    )
    assert (first.config.num_heads, first.config.register_tokens, first.config.act) == (6, 4, "gelu")
    assert (second.config.pool, second.config.act, second.config.num_heads) == ("map", "gelu", 12)
    assert any("vit_small_patch14_reg4_dinov2.lvd142m, as timm_model_ids" in n for n in first.notes)
    assert first.preprocess is None  # the host prepares pixels in a way of its own


def test_prithvi_with_dates_and_places(tmp_path):
    """Two factors of what a caller may add; without it the encoder is the plain one."""
    model = of_timm()
    factors = {f"encoder.{each}_embed_enc.scale": torch.ones(1) for each in ("temporal", "location")}
    path = tmp_path / "prithvi.pt"
    torch.save({**{f"encoder.{n}": t for n, t in model.state_dict().items()}, **factors}, path)
    loaded = parity.load(path, framework="torch", part="encoder", given=GIVEN)
    assert any("location_embed_enc.scale" in note for note in loaded.notes)
    proven(model, loaded)


@pytest.mark.parametrize("to", ["big-vision", "big-vision-scan"])
def test_maxtexts_tower_of_gemma_3(to, tmp_path):
    cfg = TINY.replace(class_token=False, pool="mean", act="gelu_tanh", num_classes=0)
    write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg))
    convert(tmp_path / "own.safetensors", to=to, out=tmp_path / "big.npz")
    renamed = {
        n.replace("MlpBlock_0", "MlpBlockViT_0"): each
        for n, each in np.load(tmp_path / "big.npz").items()
    }
    assert any("MlpBlockViT_0" in name for name in renamed)
    np.savez(tmp_path / "maxtext.npz", **renamed)
    given = {"image_size": cfg.image_size, "pool": "mean"}
    one, other = (read_checkpoint(tmp_path / f"{n}.npz", given=given).arrays for n in ("big", "maxtext"))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name].load(), other[name].load()) for name in one)


NORMED = {
    "rows": lambda m: [parametrizations.weight_norm(each) for each in (m.blocks[0].mlp.fc1, m.head)],
    "columns": lambda m: [parametrizations.weight_norm(m.blocks[1].attn.qkv, dim=1)],
    "whole": lambda m: [parametrizations.weight_norm(m.blocks[1].mlp.fc2, dim=None)],
    "convolution": lambda m: [parametrizations.weight_norm(m.patch_embed.proj)],
    "older": lambda m: [weight_norm(m.blocks[0].mlp.fc1), weight_norm(m.head, dim=None)],
}


@pytest.mark.parametrize("kind", NORMED)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_held_as_length_and_direction(kind, tmp_path):
    model = of_timm(classes=4)
    NORMED[kind](model)
    drawn(model)
    torch.save(model.state_dict(), tmp_path / "normed.pth")
    loaded = parity.load(tmp_path / "normed.pth", framework="torch", given=GIVEN)
    assert any("held as length and direction" in note for note in loaded.notes)
    assert not any("no part of" in note for note in loaded.notes)
    proven(model, loaded)
    batch = images()
    with torch.no_grad():
        assert error(parity.to_torch(model).double().logits(batch), model(batch)) <= 1e-12
    assert any(
        re.search("original1|weight_v", name) for name in model.state_dict()
    )  # the user's is kept


def test_lengths_and_directions_of_gmp(tmp_path):
    """CLIP fine-tunes of zer0int: r F.normalize(theta)."""
    model = of_timm(classes=4)
    state, weight = dict(model.state_dict()), model.blocks[2].mlp.fc1.weight.detach()
    del state["blocks.2.mlp.fc1.weight"]
    length = weight.norm(dim=1, keepdim=True)
    state |= {"blocks.2.mlp.fc1.r": length, "blocks.2.mlp.fc1.theta": 3 * weight}
    torch.save(state, tmp_path / "gmp.pth")
    proven(model, parity.load(tmp_path / "gmp.pth", framework="torch", given=GIVEN))
    torch.save({**state, "blocks.2.mlp.fc1.r": torch.ones(7, 1)}, tmp_path / "odd.pth")
    with pytest.raises(WeightsError, match=r"fc1\.r: \(7, 1\) is no length of the rows or columns"):
        read_checkpoint(tmp_path / "odd.pth", given=GIVEN)


def test_another_parametrization_is_named(tmp_path):
    model = of_timm(classes=4)
    parametrizations.orthogonal(drawn(model).head)
    torch.save(model.state_dict(), tmp_path / "odd.pth")
    with pytest.raises(WeightsError, match=r"remove_parametrizations and save"):
        read_checkpoint(tmp_path / "odd.pth", given=GIVEN)
    batch = images()
    with torch.no_grad():  # in memory torch itself computes it
        assert error(parity.to_torch(model).double().logits(batch), model(batch)) <= 1e-12


@pytest.mark.parametrize("layers", ["dropout", "identity", "mlp"])
def test_a_head_that_is_one_linear_layer_in_evaluation(layers):
    """Every tutorial on transfer puts such a head on."""
    nn, model = torch.nn, of_timm(classes=4)
    model.head = nn.Sequential(
        *{
            "dropout": (nn.Dropout(0.5), nn.Linear(30, 3)),
            "identity": (nn.Linear(30, 3), nn.Identity(), nn.Dropout(0.1)),
            "mlp": (nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 3)),
        }[layers]
    )
    model = redraw(model).eval()
    if layers == "mlp":
        with pytest.raises(
            WeightsError, match=r"its classifier, head\.0\.weight, .* none that a schema has"
        ):
            parity.to_torch(model)
        return
    batch = images()
    with torch.no_grad():
        assert error(parity.to_torch(model).double().logits(batch), model(batch)) <= 1e-12


def test_a_host_with_a_tower_of_timm_that_pools_nothing(tmp_path):
    """Perception LM: its timm tower has global_pool = '' and, in a host, no list of classes."""
    tower = {
        "architecture": "vit_pe_core_tiny_patch16_384",
        "model_args": {
            "embed_dim": 40, "depth": 2, "num_heads": 5, "img_size": [32, 32], "global_pool": "",
            "use_post_transformer_norm": False, "init_values": 0.1, "ref_feat_shape": [2, 2],
        },
    }  # fmt: skip
    text = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9
    )
    config = transformers.PerceptionLMConfig(
        vision_config=tower, text_config=text, image_token_id=5, vision_use_cls_token=True
    )
    model = redraw(transformers.PerceptionLMForConditionalGeneration(config).double())
    model.save_pretrained(tmp_path / "host")
    with pytest.raises(ValueError, match=r"global_pool = '', and no schema pools so"):
        read_checkpoint(tmp_path / "host")
    loaded = parity.load(tmp_path / "host", framework="torch", override={"pool": "class"})
    batch = images(32, 32)
    with torch.no_grad():
        inner = model.model.vision_tower.timm_model
        assert (
            error(loaded.model.double().forward_features(batch), inner.forward_features(batch)) <= 1e-5
        )
