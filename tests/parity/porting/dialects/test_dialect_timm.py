"""timm's dialects: real models of timm's, saved by timm, to both twins and back into timm."""

import functools
import json
import runpy

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from parity.porting.dialects import find_dialects
from parity.porting.dialects.rewrites import ModelState, canonical, express
from parity.porting.dialects.sidecars import Sidecars
from parity.porting.formats import Stored
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import prove
from tests.support.timm_models import bare, logits_of, reload, saved, small, timm, write_json
from vit_config import Preprocess, ViTConfig
from vit_config.parameters import parameters
from vit_config.rope import Rope

# between them: every spelling, block, attention, pool, position kind, norm and MLP that timm has
PROVEN = {
    "vit_tiny_patch16_224": "timm-vit",
    "vit_little_patch16_reg4_gap_256": "timm-vit",
    "vit_small_patch14_reg4_dinov2": "timm-vit",
    "deit_tiny_distilled_patch16_224": "timm-vit",
    "deit3_small_patch16_224": "timm-vit",
    "vit_base_patch16_siglip_224": "timm-vit",
    "vit_base_patch16_clip_quickgelu_224": "timm-vit",
    "vit_giant_patch14_reg4_dinov2": "timm-vit",
    "aimv2_large_patch14_224": "timm-vit",
    "beit3_base_patch16_224": "timm-vit",
    "vit_base_patch16_xp_224": "timm-vit",
    "vit_small_patch16_18x2_224": "timm-vit",
    "vit_base_patch16_rpn_224": "timm-vit",
    "vit_dpwee_patch16_reg1_gap_256": "timm-vit",
    "vit_dwee_patch16_reg1_gap_256": "timm-vit",
    "test_vit3": "timm-vit",
    "beit_base_patch16_224": "timm-beit",
    "eva02_tiny_patch14_224": "timm-eva",
    "eva02_base_patch14_224": "timm-eva-split",
    "eva_giant_patch14_224": "timm-eva",
    "eva02_enormous_patch14_clip_224": "timm-eva",
    "vit_base_patch16_dinov3": "timm-eva",
    "vit_base_patch16_dinov3_qkvb": "timm-eva",
    "vit_base_patch16_rope_mixed_ape_224": "timm-eva",
    "vit_base_patch16_rope_ape_224": "timm-eva",
    "vit_pe_core_base_patch16_224": "timm-eva",
    "vit_large_patch16_sapiens2": "timm-eva-split",
    "naflexvit_base_patch16_par_gap": "timm-naflex",
    "naflexvit_base_patch16_parfac_gap": "timm-naflex",
    "naflexvit_base_patch16_siglip": "timm-naflex",
    "naflexvit_base_patch16_radio_v3": "timm-naflex",
    "gemma4_vit_167m": "timm-gemma4",
    "gemma4_vit_570m": "timm-gemma4",
    "gemma4_vit_167m_enc": "timm-gemma4-encoder",
    "gemma4_vit_570m_enc": "timm-gemma4-encoder",
}
QUICK = {
    "vit_tiny_patch16_224",
    "vit_dpwee_patch16_reg1_gap_256",
    "beit_base_patch16_224",
    "eva02_base_patch14_224",
    "naflexvit_base_patch16_par_gap",
    "gemma4_vit_167m",
    "gemma4_vit_570m_enc",
}


SMALL = {
    "image_size": (32, 48),
    "hidden_size": 30,
    "depth": 3,
    "num_heads": 5,
    "mlp_dim": 77,
    "num_classes": 7,
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow, pytest.mark.exhaustive])
        for n in PROVEN
    ],
)
def test_there_and_back(name, tmp_path):
    model = small(name)
    folder = saved(tmp_path / "timm", model)
    prove(folder, logits_of(model), to=PROVEN[name], out=tmp_path / "back", reload=reload)


def test_timm_itself_loads_what_was_written(tmp_path):
    model = timm.create_model("test_vit2", num_classes=7, img_size=(32, 48)).eval()
    folder = saved(tmp_path / "timm", model)
    convert(folder, to="timm", out=tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architecture"] == "test_vit2"
    assert config["model_args"] == {
        "img_size": [32, 48],
        "in_chans": 3,
        "num_classes": 7,
        "global_pool": "avg",
    }
    again = timm.create_model(f"local-dir:{tmp_path / 'back'}", pretrained=True)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    theirs, ours = (json.loads(json.dumps(each.pretrained_cfg)) for each in (model, again))
    keys = ("mean", "std", "interpolation", "crop_pct", "crop_mode", "license")
    assert [ours[key] for key in keys] == [theirs[key] for key in keys]


def test_what_no_json_says_is_said_in_python(tmp_path):
    changes = {"norm_layer": lambda *a, **k: timm.layers.LayerNorm(*a, **{**k, "eps": 1e-12})}
    model = small("vit_tiny_patch16_224", **changes)
    path = bare(tmp_path / "bare", model)
    given = {"num_heads": 6, "norm_eps": 1e-12, "act": "gelu", "pool": "class", "block": "pre_norm"}
    source = read_checkpoint(path, given={**given, "image_size": (32, 48)})
    (hint,) = convert(source, to="timm", out=tmp_path / "out.safetensors").hints
    written = load_file(tmp_path / "out.safetensors")
    built = eval(hint.partition(": ")[2], {"timm": timm, "functools": functools}).double()
    built.load_state_dict({name: torch.from_numpy(each) for name, each in written.items()}, strict=True)
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 32, 48)))
    expected = model.eval()(images)
    assert torch.equal(built.eval()(images), expected)
    given = Preprocess(mean=(0.1, 0.2, 0.3), crop_fraction=0.7, class_names=tuple("abcdefghijk"))
    source = read_checkpoint(tmp_path / "out.safetensors", preprocess=given)
    (hint,) = convert(source, to="timm", out=tmp_path / "folder").hints
    assert "model.py in the folder builds it: timm.create_model('vit_small_patch16_224'" in hint
    assert not (tmp_path / "folder/config.json").exists()
    made = runpy.run_path(str(tmp_path / "folder/model.py"))["create_model"]()
    rounded = {name: value.float().double() for name, value in model.state_dict().items()}
    assert made.norm.eps == 1e-12
    for name, value in made.double().state_dict().items():  # timm makes it in float32
        assert torch.equal(value, rounded[name])
    data = timm.data.resolve_model_data_config(made)
    assert tuple(data["input_size"]) == (3, 32, 48)
    assert (tuple(data["mean"]), data["crop_pct"]) == (given.mean, 0.7)
    assert made.pretrained_cfg["label_names"] == list(given.class_names)
    assert read_checkpoint(tmp_path / "folder").preprocess == given


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_activation": "softmax"}, "head_activation = softmax"),
        ({"attention": "per_head"}, "attention = per_head"),
        ({"pool": "class_mean"}, "pool = class_mean"),
        ({"head_hidden": 9}, "head_hidden = 9"),
        ({"attention_head_dim": 8}, "attention_head_dim = 8"),
        ({"distill_token": True, "register_tokens": 1}, "a position for every token, and no registers"),
        ({"pool": "map", "pool_mlp_dim": 99}, "an MLP as wide as the blocks' first layer, 77"),
        (
            {"rope": Rope(), "attention_norm": True, "mlp_bias": False, "attention_out_bias": False},
            "mlp_bias",
        ),
    ],
    ids=str,
)
def test_what_timm_cannot_compute_is_refused(changes, said):
    cfg = ViTConfig(**{**SMALL, "hidden_size": 40, **changes})
    problems = ["; ".join(each.problems(cfg).values()) for each in find_dialects("timm")]
    assert all(problems)
    assert any(said in problem for problem in problems)


def test_patches_without_bias_get_one_of_zeros(tmp_path):
    """timm has no bias where CLIP's norm follows and one where it does not."""
    cfg = ViTConfig(**SMALL, patch_bias=False, class_token=False, pool="mean")
    stream = np.random.default_rng(0)
    arrays = {name: Stored.of(stream.standard_normal(p.shape)) for name, p in parameters(cfg).items()}
    state = express(ModelState(cfg, arrays), find_dialects("timm-vit")[0])
    assert state.said == ("patch projection: biases of zeros added",)
    assert state.config.patch_bias


def test_preprocessing_and_names_pass_through(tmp_path):
    model = small("vit_base_patch16_dinov3", num_classes=3)
    folder = saved(tmp_path / "timm", model)
    config = json.loads((folder / "config.json").read_text())
    config["label_names"] = {"1": "b", "0": "a", "2": "c"}
    config["pretrained_cfg"] |= {"crop_pct": 0.9, "crop_mode": "border", "license": "some"}
    write_json(folder, config)
    source = read_checkpoint(folder)
    assert source.preprocess.class_names == ("a", "b", "c")
    assert source.preprocess.image_size == (256, 256)  # of a model that takes any size
    assert (source.preprocess.crop_fraction, source.preprocess.crop_mode) == (0.9, "border")
    assert source.license == "some"
    convert(source, to="timm", out=tmp_path / "back")
    again = read_checkpoint(tmp_path / "back")
    assert (again.preprocess, again.config) == (source.preprocess, canonical(source.config))
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert back["label_names"] == ["a", "b", "c"]
    assert Sidecars({"config.json": back}).metadata(find_dialects("timm-eva")[0]) == source.metadata
