"""timm's dialects: real models of timm's, saved by timm, to both twins and back into timm."""

import json
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from dialect_proof import prove, redraw
from safetensors.numpy import load_file
from safetensors.torch import save_file as save_torch

from parity.checkpoint import read_checkpoint
from parity.containers import Stored, open_container
from parity.conversion import convert
from parity.dialects import called, dialects
from parity.dialects.dialect import NEUTRAL
from parity.dialects.folds import State, canonical, express
from parity.dialects.recognise import find
from parity.family import peer
from parity.family.shrink import shrunk_arguments
from vit_config import (
    PRESETS,
    ConfigError,
    ViTConfig,
    WeightsError,
    preset,
    preset_preprocess,
    preset_tags,
)
from vit_config.parameters import parameters
from vit_config.rope import Rope

sys.path.append(str(Path(__file__).parent.parent / "tools"))
reader = import_module("timm_schema")
timm = peer.import_timm()
MODULES = peer.architectures()

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
}
QUICK = {
    "vit_tiny_patch16_224",
    "vit_dpwee_patch16_reg1_gap_256",
    "beit_base_patch16_224",
    "eva02_base_patch14_224",
}


def small(name, **changes):
    """A small model of an architecture, with every switch as it is."""
    model = peer.create_float64(name, **{**shrunk_arguments(PRESETS[name], MODULES[name]), **changes})
    return redraw(model)


def saved(folder, model):
    """The folder that timm itself writes of a model."""
    timm.models._hub.save_for_hf(model, folder, safe_serialization=True)
    return folder


def logits_of(model):
    def logits(images):
        with torch.no_grad(), peer.float64():
            return model(torch.from_numpy(images)).numpy()

    return logits


def reload(folder):
    """timm's model of a folder, loaded strictly, in float64."""
    model = peer.create_float64(f"local-dir:{folder}")
    state = {
        name: torch.from_numpy(each) for name, each in load_file(folder / "model.safetensors").items()
    }
    model.load_state_dict(state, strict=True)
    return logits_of(model)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in PROVEN]
)
def test_there_and_back(name, tmp_path):
    model = small(name)
    folder = saved(tmp_path / "timm", model)
    prove(folder, logits_of(model), to=PROVEN[name], out=tmp_path / "back", reload=reload)


SMALL = {
    "image_size": (32, 48),
    "hidden_size": 30,
    "depth": 3,
    "num_heads": 5,
    "mlp_dim": 77,
    "num_classes": 7,
}
# an architecture, and what is changed in it that a config.json has to say
TOLD = {
    "sizes": ("vit_tiny_patch16_224", {**SMALL, "patch_size": (8, 16), "in_channels": 2}),
    "tokens": ("vit_tiny_patch16_224", {"register_tokens": 2, "pos_embed_prefix": "none"}),
    "no class token": ("vit_tiny_patch16_224", {"class_token": False, "pool": "mean"}),
    "mean after the norm": ("vit_tiny_patch16_224", {"pool": "mean"}),
    "norm after the mean": ("vit_tiny_patch16_224", {"pool": "mean", "final_norm": "post_pool"}),
    "no norm": ("vit_tiny_patch16_224", {"final_norm": "none"}),
    "no positions": ("vit_tiny_patch16_224", {"pos_embed": "none"}),
    "map pool": ("vit_tiny_patch16_224", {"pool": "map", "pool_prefix": True, "layer_scale": 0.1}),
    "biases": (
        "vit_tiny_patch16_224",
        {"qkv_bias": False, "attention_out_bias": False, "mlp_bias": False},
    ),
    "norms": ("vit_tiny_patch16_224", {"norm": "rmsnorm", "qk_norm": True, "patch_norm": True}),
    "norms of branches": ("vit_tiny_patch16_224", {"attention_norm": True, "mlp_norm": True}),
    "clip": ("vit_tiny_patch16_224", {"pre_norm": True, "patch_bias": False, "act": "quick_gelu"}),
    "another epsilon": (
        "vit_base_patch16_clip_224",
        {"hidden_size": 512, "num_heads": 8, "act": "relu"},
    ),
    "differential": ("vit_tiny_patch16_224", {"attention": "differential"}),
    "parallel": ("vit_base_patch16_xp_224", {"class_token": True, "pool": "class"}),
    "branches": ("vit_small_patch16_18x2_224", {"layer_scale": 0.1, "act": "silu"}),
    "packed, without scales": ("vit_giant_patch14_dinov2", {"layer_scale": None, "mlp_dim": 4000}),
    "distilled": ("deit_tiny_distilled_patch16_224", {"hidden_size": 96, "act": "gelu_tanh"}),
    "any size": ("vit_tiny_patch16_224", {"dynamic_image_size": True}),
    "eva, plain": (
        "eva_giant_patch14_224",
        {**SMALL, "patch_size": 16, "hidden_size": 60, "register_tokens": 1},
    ),
    "eva, no biases": ("eva_giant_patch14_224", {"qkv_bias": False, "k_bias": True}),
    "eva, all biases": ("eva_giant_patch14_224", {"k_bias": True}),
    "eva, gates": ("eva_giant_patch14_224", {"mlp": "swiglu", "act": "silu"}),
    "eva, packed gates": ("eva_giant_patch14_224", {"mlp": "swiglu_packed", "act": "silu"}),
    "eva, normed gates": ("eva_giant_patch14_224", {"mlp": "swiglu", "act": "silu", "mlp_norm": True}),
    "eva, turned": ("eva_giant_patch14_224", {"rope": Rope(kind="centered", theta=50.0, pairs="half")}),
    "eva, learned": ("eva_giant_patch14_224", {"rope": Rope(kind="mixed", theta=9.0, axes="wh")}),
    "eva, unturned": ("vit_base_patch16_dinov3", {"rope": None, "pos_embed": "learned"}),
    "eva, one gain": ("vit_base_patch16_dinov3", {"layer_scale_on": "attention", "qk_norm": True}),
    "eva, map pool": (
        "eva_giant_patch14_224",
        {
            "pool": "map",
            "pool_prefix": True,
            "pool_num_heads": 4,
            "pool_mlp_dim": 99,
            "final_norm": "none",
        },
    ),
    "eva, res_post": ("eva_giant_patch14_224", {"block": "res_post", "pool": "class"}),
    "eva, shared keys": (
        "eva_giant_patch14_224",
        {"depth": 3, "num_kv_heads": (4, 2, 4), "k_bias": True},
    ),
    "beit": ("beit_base_patch16_224", {**SMALL, "pos_embed": "learned", "final_norm": "pre_pool"}),
    "beit, gates": ("beit_base_patch16_224", {"mlp": "swiglu", "act": "silu", "mlp_norm": True}),
    "beit, no scales": (
        "beit_base_patch16_224",
        {"layer_scale": None, "pool": "class", "qkv_bias": False, "k_bias": True},
    ),
}
ASIDE = {"init": "timm", "pos_embed_resize": "bicubic_antialias", "layer_scale": 1.0}


def aside(cfg):
    """A schema without what initial values and other image sizes are about."""
    return cfg.replace(**{**ASIDE, "layer_scale": cfg.layer_scale and 1.0})


@pytest.mark.parametrize("case", TOLD)
def test_a_config_json_says_what_was_changed(case):
    """timm builds the model that was meant, and what it was told is read as that."""
    name, changes = TOLD[case]
    cfg = canonical(PRESETS[name].replace(**changes))
    dialect = next(each for each in called("timm") if not each.problems(cfg))
    config = dialect.settings.files(cfg, None)["config.json"]
    config = json.loads(json.dumps(config))
    model = peer.create_abstract(config["architecture"], **config["model_args"])
    built = reader.read_schema(model, (), {})
    assert aside(canonical(built)) == aside(cfg)
    fields = dialect.settings.fields({"config.json": config})
    said = {field: getattr(cfg, field) for field in fields}
    said["layer_scale"] = fields.get("layer_scale")
    wrong = {field: (fields[field], said[field]) for field in fields if fields[field] != said[field]}
    assert wrong.keys() <= {"init", "pos_embed_resize"}


@pytest.mark.parametrize("name", MODULES)
def test_every_architecture_is_said_by_its_name_alone(name):
    cfg = canonical(PRESETS[name])
    fitting = [each for each in called("timm") if not each.problems(cfg)]
    assert fitting, [each.problems(cfg) for each in called("timm")]
    modules = {
        "vision_transformer": "timm-vit",
        "deit": "timm-vit",
        "eva": "timm-eva",
        "beit": "timm-beit",
    }
    (dialect,) = [
        each for each in fitting if each.name.removesuffix("-split") == modules[MODULES[name]]
    ][:1]
    config = dialect.settings.files(cfg, None)["config.json"]
    assert canonical(PRESETS[config["architecture"]]) == cfg.replace(
        **{field: getattr(PRESETS[config["architecture"]], field) for field in NEUTRAL}
    ).replace(layer_scale=PRESETS[config["architecture"]].layer_scale)
    assert config["model_args"].keys() <= {
        "img_size",
        "in_chans",
        "num_classes",
        "global_pool",
        "qkv_fused",
    }


def write_json(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


def bare(folder, model):
    """A file with nothing but tensors."""
    folder.mkdir()
    path = folder / "model.pth"
    torch.save(model.state_dict(), path)
    return path


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


def test_no_architecture_hides_an_argument_that_another_pool_would_show():
    """An architecture that pools another way would need a word in the presets for this argument."""
    source = Path(timm.models.vision_transformer.__file__).read_text()
    source += Path(timm.models.deit.__file__).read_text()
    shown = [name for name in MODULES if PRESETS[name].pool_prefix and MODULES[name] != "eva"]
    assert source.count("pool_include_prefix=True") == len(shown) == 1


def test_what_no_json_says_goes_into_a_file(tmp_path):
    changes = {"norm_layer": lambda *a, **k: timm.layers.LayerNorm(*a, **{**k, "eps": 1e-12})}
    model = small("vit_tiny_patch16_224", **changes)
    path = bare(tmp_path / "bare", model)
    given = {"num_heads": 6, "norm_eps": 1e-12, "act": "gelu", "pool": "class", "block": "pre_norm"}
    source = read_checkpoint(path, given={**given, "image_size": (32, 48)})
    with pytest.raises(ConfigError, match=r"it cannot say .*norm_eps = 1e-12.*write a file"):
        convert(source, to="timm", out=tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    convert(source, to="timm", out=tmp_path / "out.safetensors")
    written = load_file(tmp_path / "out.safetensors")
    model.load_state_dict({name: torch.from_numpy(each) for name, each in written.items()}, strict=True)


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
        ("vit_base_patch16_dinov3", "timm-eva", "num_heads, norm_eps, pool, image_size, rope"),
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
    assert find(open_container(path), dialects()).dialect.name == spelling
    with pytest.raises(ConfigError, match=f"nothing says {asked}"):
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
        ConfigError, match=r"several models, state_dict, state_dict_ema.*--part state_dict"
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
    with pytest.raises(ConfigError, match="the argument gated = True is not understood"):
        read_checkpoint(path)


@pytest.mark.parametrize("arch", ["visiontransformer", "resnet50", 5])
def test_a_name_that_is_none_of_timms_says_nothing(tmp_path, arch):
    path = tmp_path / "last.pth.tar"
    torch.save(training(arch=arch), path)
    with pytest.raises(ConfigError, match="nothing says num_heads"):
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
    assert source.notes[0] == f"stripped 'state_dict.{attribute}' of every name"


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


def test_the_layer_before_the_head_of_older_timm(tmp_path):
    model = small("vit_tiny_patch16_224")
    state = model.state_dict()
    state["pre_logits.fc.weight"], state["pre_logits.fc.bias"] = torch.ones(48, 48), torch.ones(48)
    path = tmp_path / "old.pth"
    torch.save(state, path)
    given = {"num_heads": 6, "norm_eps": 1e-6, "act": "gelu", "pool": "class", "block": "pre_norm"}
    with pytest.raises(WeightsError, match="head_hidden = 48"):
        read_checkpoint(path, given={**given, "image_size": (32, 48)})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"architecture": "resnet50"},
            "architecture = 'resnet50' is none of the 251 Vision Transformers",
        ),
        ({"architecture": "vit_base_r50_s16_224"}, "'vit_base_r50_s16_224' is none of the 251"),
        (
            {"model_args": {"gated": True}},
            "vit_tiny_patch16_224: the argument gated = True is not understood",
        ),
        ({"model_args": {"act_layer": "mish"}}, "act_layer = 'mish'; known are 'gelu', "),
        ({"model_args": {"global_pool": "avgmax"}}, "global_pool = 'avgmax'; known are 'token'"),
        ({"model_args": {"norm_layer": "batchnorm"}}, "norm_layer = 'batchnorm'; known are 'layernorm'"),
        ({"model_args": {"dynamic_img_pad": True}}, "dynamic_img_pad = True; known is False alone"),
        ({"model_args": {"img_size": [[]]}}, "arguments that do not fit together"),
        ({"model_args": {"patch_size": 0}}, "arguments that do not fit together"),
        ({"model_args": []}, None),
        ({"model_args": [1]}, "model_args = .1. is no object"),
        ({"model_args": {"img_size": 224}}, "position table has 7 rows, the image 196 patches"),
        ({"model_args": {"embed_dim": 64}}, "hidden_size is 48 by shapes but 64 by config.json"),
        ({"pretrained_cfg": "tiny"}, "pretrained_cfg = 'tiny' is no object"),
        (
            {"pretrained_cfg": {"input_size": [3, 224]}},
            "input_size = .3, 224.; expected channels, height",
        ),
        ({"pretrained_cfg": {"interpolation": "random"}}, "interpolation = 'random'"),
    ],
    ids=str,
)
def test_a_wrong_config_json_is_refused_in_one_line(tmp_path, change, said):
    model = small("vit_tiny_patch16_224")
    folder = saved(tmp_path / "timm", model)
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        merge = isinstance(value, dict)
        config[key] = {**config[key], **value} if merge else value
    write_json(folder, config)
    if said is None:
        return
    with pytest.raises((ConfigError, WeightsError), match=said) as caught:
        read_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_no_vision_transformer(tmp_path):
    folder = saved(tmp_path / "timm", timm.create_model("test_efficientnet"))
    with pytest.raises(
        ConfigError, match="architecture = 'test_efficientnet' is none of the 251 Vision"
    ):
        read_checkpoint(folder)


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
    assert called("timm-eva")[0].settings.preprocess({"config.json": back}) == source.preprocess


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
    problems = ["; ".join(each.problems(cfg).values()) for each in called("timm")]
    assert all(problems)
    assert any(said in problem for problem in problems)


def test_patches_without_bias_get_one_of_zeros(tmp_path):
    """timm has no bias where CLIP's norm follows and one where it does not."""
    cfg = ViTConfig(**SMALL, patch_bias=False, class_token=False, pool="mean")
    stream = np.random.default_rng(0)
    arrays = {name: Stored.of(stream.standard_normal(p.shape)) for name, p in parameters(cfg).items()}
    state = express(State(cfg, arrays), called("timm-vit")[0])
    assert state.said == ("patch projection: biases of zeros added",)
    assert state.config.patch_bias


@pytest.mark.parametrize("name", MODULES)
def test_every_repository_on_the_hub_is_understood(name):
    """Their config.json is what timm says of the tag; read without timm it is the preset of that tag."""
    for tag in preset_tags(name):
        pretrained = timm.models.get_pretrained_cfg(f"{name}.{tag}").to_dict(remove_source=True)
        config = {
            "architecture": name,
            "num_classes": pretrained["num_classes"],
            "pretrained_cfg": pretrained,
        }
        sidecars = {"config.json": json.loads(json.dumps(config))}
        (settings, *_) = [each.settings for each in called("timm") if each.settings.recognise(sidecars)]
        fields = settings.fields(sidecars)
        cfg = preset(f"{name}.{tag}")
        assert {field: fields.get(field, getattr(cfg, field)) for field in cfg.fields()} == dict(cfg)
        assert len(fields) == len(cfg.fields())
        told = settings.preprocess(sidecars)
        expected = preset_preprocess(f"{name}.{tag}")
        assert told.replace(image_size=None) == expected
        assert told.image_size in (None, tuple(pretrained["input_size"][1:]))
