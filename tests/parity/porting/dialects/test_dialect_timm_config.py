"""timm's config.json: which architecture it names for a schema, and what its arguments mean."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from evidence.timm_sweep import peer
from parity.porting.dialects import find_dialects
from parity.porting.dialects.dialect import NEUTRAL
from parity.porting.dialects.rewrites import canonical
from parity.porting.formats.metadata import Metadata
from parity.porting.reading.checkpoint import read_checkpoint
from tests.support.timm_models import MODULES, saved, small, timm, write_json
from vit_config import PRESETS, ConfigError, WeightsError, preset, preset_preprocess, preset_tags
from vit_config.rope import Rope

pytestmark = pytest.mark.quick

reader = import_module("timm_schema")

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


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if i % 5 else []) for i, case in enumerate(TOLD)],
)
def test_a_config_json_says_what_was_changed(case):
    """timm builds the model that was meant, and what it was told is read as that."""
    name, changes = TOLD[case]
    cfg = canonical(PRESETS[name].replace(**changes))
    dialect = next(each for each in find_dialects("timm") if not each.problems(cfg))
    config = dialect.settings.files(cfg, Metadata())["config.json"]
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
    fitting = [each for each in find_dialects("timm") if not each.problems(cfg)]
    assert fitting, [each.problems(cfg) for each in find_dialects("timm")]
    modules = {
        "vision_transformer": "timm-vit",
        "deit": "timm-vit",
        "eva": "timm-eva",
        "beit": "timm-beit",
        "naflexvit": "timm-naflex",
        "gemma4_vit": "timm-gemma4-encoder" if name.endswith("_enc") else "timm-gemma4",
    }
    (dialect,) = [
        each for each in fitting if each.name.removesuffix("-split") == modules[MODULES[name]]
    ][:1]
    config = dialect.settings.files(cfg, Metadata())["config.json"]
    assert canonical(PRESETS[config["architecture"]]) == cfg.replace(
        **{field: getattr(PRESETS[config["architecture"]], field) for field in NEUTRAL}
    ).replace(layer_scale=PRESETS[config["architecture"]].layer_scale)
    assert config["model_args"].keys() <= {
        "img_size",
        "in_chans",
        "num_classes",
        "global_pool",
        "qkv_fused",
        "standardize",
    }


def test_no_architecture_hides_an_argument_that_another_pool_would_show():
    """An architecture that pools another way would need a word in the presets for this argument."""
    source = Path(timm.models.vision_transformer.__file__).read_text()
    source += Path(timm.models.deit.__file__).read_text()
    shown = [name for name in MODULES if PRESETS[name].pool_prefix and MODULES[name] != "eva"]
    assert source.count("pool_include_prefix=True") == len(shown) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"architecture": "resnet50"},
            "architecture = 'resnet50' is not one of the 269 Vision Transformers",
        ),
        ({"architecture": "vit_base_r50_s16_224"}, "'vit_base_r50_s16_224' is not one of the 269"),
        (
            {"model_args": {"gated": True}},
            "vit_tiny_patch16_224: the argument gated = True is not supported",
        ),
        ({"model_args": {"act_layer": "mish"}}, "act_layer = 'mish'; expected one of 'gelu', "),
        ({"model_args": {"global_pool": "avgmax"}}, "global_pool = 'avgmax'; expected one of 'token'"),
        (
            {"model_args": {"norm_layer": "batchnorm"}},
            "norm_layer = 'batchnorm'; expected one of 'layernorm'",
        ),
        ({"model_args": {"dynamic_img_pad": True}}, "dynamic_img_pad = True; expected False"),
        ({"model_args": {"img_size": [[]]}}, "arguments that do not fit together"),
        ({"model_args": {"patch_size": 0}}, "arguments that do not fit together"),
        ({"model_args": []}, None),
        ({"model_args": [1]}, "model_args = .1. is not an object"),
        (
            {"model_args": {"img_size": 224}},
            "position table has 7 rows, the image 196 patches by image_size = 224x224"
            r" \(config.json.*; give --override image_size=HxW",
        ),
        ({"model_args": {"embed_dim": 64}}, r"hidden_size = 48 \(shapes\), but 64 \(config.json"),
        ({"pretrained_cfg": "tiny"}, "pretrained_cfg = 'tiny' is not an object"),
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
        ConfigError, match="architecture = 'test_efficientnet' is not one of the 269 Vision"
    ):
        read_checkpoint(folder)


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
        (settings, *_) = [
            each.settings for each in find_dialects("timm") if each.settings.recognise(sidecars)
        ]
        fields = settings.fields(sidecars)
        cfg = preset(f"{name}.{tag}")
        assert {field: fields.get(field, getattr(cfg, field)) for field in cfg.fields()} == dict(cfg)
        assert len(fields) == len(cfg.fields())
        pixels = settings.metadata(sidecars, fields).preprocess
        expected = preset_preprocess(f"{name}.{tag}")
        assert pixels.replace(image_size=None) == expected
        assert pixels.image_size in (None, tuple(pretrained["input_size"][1:]))


def test_images_are_prepared_at_the_size_that_the_weights_were_for(tmp_path):
    """Where it is not the model's, which then takes any."""
    folder = saved(tmp_path / "timm", small("vit_tiny_patch16_224"))
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= {"input_size": [3, 80, 64]}
    del config["pretrained_cfg"]["fixed_input_size"]
    write_json(folder, config)
    assert read_checkpoint(folder).metadata.pixels.image_size == (80, 64)
