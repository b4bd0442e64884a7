"""Presets: timm's as data that the generator makes again, tags, preprocessing, and what it refuses."""

import json
import subprocess
import sys
from collections import Counter
from importlib import import_module

import pytest
import torch

from tests.support.peers import import_timm
from vit_config import (
    PRESETS,
    ConfigError,
    Preprocess,
    ViTConfig,
    preset,
    preset_preprocess,
    preset_tags,
)
from vit_config.presets import from_timm
from vit_config.presets.own import OWN

pytestmark = pytest.mark.slow

timm = import_timm()
generator = import_module("generate_presets")
reader = import_module("timm_schema")

ARCHITECTURES = from_timm.architectures()
ENTRIES = [(name, tag) for name in ARCHITECTURES for tag in from_timm.tags(name)]

SAMPLE = [  # one of each kind: tokens, pools, norms, blocks, attentions, MLPs, positions, sizes
    "vit_tiny_patch16_224", "vit_so400m_patch14_siglip_gap_384", "vit_dlittle_patch16_reg1_gap_256",
    "flexivit_small", "vit_small_patch14_reg4_dinov2",
    "vit_wee_patch16_reg1_gap_256", "vit_pwee_patch16_reg1_gap_256", "vit_dpwee_patch16_reg1_gap_256",
    "vit_small_patch16_18x2_224", "vit_base_patch16_rpn_224", "vit_base_patch16_xp_224",
    "vit_base_patch16_siglip_224", "vit_base_patch16_clip_quickgelu_224",
    "beit3_base_patch16_224", "test_vit3", "vit_base_patch16_radio_v3", "vit_medium_patch16_gap_240",
    "aimv2_large_patch14_224", "deit_tiny_distilled_patch16_224", "deit3_small_patch16_224",
    "beit_base_patch16_224", "eva02_tiny_patch14_224", "eva_giant_patch14_224",
    "vit_small_patch16_dinov3", "vit_small_patch16_rope_mixed_ape_224", "vit_pe_core_tiny_patch16_384",
    "vit_base_patch16_sapiens2", "naflexvit_base_patch16_parfac_gap", "naflexvit_base_patch16_radio_v3",
    "gemma4_vit_570m_enc",
]  # fmt: skip


def test_everything_of_timms_six_modules_is_there():
    assert Counter(entry["module"] for entry in ARCHITECTURES.values()) == {
        "vision_transformer": 163,
        "deit": 16,
        "eva": 65,
        "beit": 7,
        "naflexvit": 14,
        "gemma4_vit": 4,
    }
    assert len(ENTRIES) == 469
    assert len(PRESETS) == len(list(PRESETS)) == len(OWN) + 269


@pytest.mark.parametrize("name", SAMPLE)
def test_the_data_is_what_timm_builds(name):
    assert _as_json(generator.entry(ARCHITECTURES[name]["module"], name)) == ARCHITECTURES[name]


@pytest.mark.exhaustive
def test_much_of_the_data_is_what_timm_builds():
    """Every seventh; the names and shapes of all are compared by `python -m evidence.timm_sweep`."""
    for name, actual in list(ARCHITECTURES.items())[::7]:
        assert _as_json(generator.entry(actual["module"], name)) == actual


def test_every_preset_and_tag_is_a_schema():
    for name, cfg in PRESETS.items():
        assert cfg == preset(name) == PRESETS[name]
    for name, tag in ENTRIES:
        cfg, base = preset(f"{name}.{tag}"), preset(name)
        same = {"num_classes": base.num_classes, "image_size": base.image_size}
        assert cfg.replace(**same) == base
        pixels = preset_preprocess(f"{name}.{tag}")
        assert len(pixels.mean) == cfg.in_channels


def test_the_data_has_no_defaults():
    defaults = json.loads(ViTConfig().to_json())
    for entry in ARCHITECTURES.values():
        for name, value in entry["schema"].items():
            assert defaults[name] not in (value, [value, value]), name


@pytest.mark.parametrize(
    ("name", "sizes"),
    {  # arXiv 2010.11929 table 1, 2012.12877: hidden_size, depth, num_heads, mlp_dim, patch_size
        "vit_tiny_patch16_224": (192, 12, 3, 768, 16),
        "vit_small_patch16_224": (384, 12, 6, 1536, 16),
        "vit_base_patch16_224": (768, 12, 12, 3072, 16),
        "vit_large_patch16_224": (1024, 24, 16, 4096, 16),
        "vit_huge_patch14_224": (1280, 32, 16, 5120, 14),
    }.items(),
)
def test_the_plain_sizes_are_plain(name, sizes):
    fields = ("hidden_size", "depth", "num_heads", "mlp_dim", "patch_size")
    plain = ViTConfig(**dict(zip(fields, sizes, strict=True)))
    assert preset(name).replace(num_classes=1000) == plain


def test_a_tag_changes_the_number_of_classes():
    base = preset("vit_base_patch16_224")
    assert base.num_classes == 1000
    assert preset("vit_base_patch16_224.augreg_in21k") == base.replace(num_classes=21843)


def test_the_first_tag_is_the_default():
    assert preset_tags("vit_base_patch16_224")[0] == "augreg2_in21k_ft_in1k"
    for name in ARCHITECTURES:
        first = preset_tags(name)[0]
        assert preset(f"{name}.{first}") == preset(name)
        assert preset_preprocess(f"{name}.{first}") == preset_preprocess(name)
    assert preset_tags("digits") == ()


def test_preprocessing_of_a_tag():
    openai = preset_preprocess("vit_base_patch16_clip_quickgelu_224.openai")
    assert openai.mean == (0.48145466, 0.4578275, 0.40821073)
    assert (openai.interpolation, openai.crop_fraction, openai.license) == ("bicubic", 0.9, "apache-2.0")
    assert preset_preprocess("eva_large_patch14_336.in22k_ft_in1k").crop_mode == "squash"
    assert preset_preprocess("vit_small_patch16_224.dino").mean == (0.485, 0.456, 0.406)


def test_preprocessing_without_the_newer_fields_still_reads():
    old = '{"mean": [0.5], "std": [0.2], "interpolation": "bilinear", "crop_fraction": 0.9}'
    assert Preprocess.from_json(old) == Preprocess(
        mean=(0.5,), std=(0.2,), interpolation="bilinear", crop_fraction=0.9
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vit_base_patch16_22", "did you mean 'vit_base_patch16_224'"),
        ("vit_base_patch16_244.augreg_in21k", "did you mean 'vit_base_patch16_224'"),
        ("resnet", "269 of timm's names"),
        ("vit_small_patch8_224.augreg", "its tags are dino"),
        ("vit_small_patch8_224.", "its tags are dino"),
        ("digits.dino", "it has none"),
    ],
)
@pytest.mark.parametrize("function", [preset, preset_preprocess, preset_tags])
def test_unknown_names_and_tags(name, words, function):
    with pytest.raises(ConfigError, match=words):
        function(name)


def test_own_presets_have_no_preprocessing():
    with pytest.raises(ConfigError, match="'digits' has no pretrained weights"):
        preset_preprocess("digits")


def test_presets_are_a_mapping():
    assert "vit_base_patch16_224" in PRESETS
    assert "vit_base_patch16_224.mae" not in PRESETS
    assert "digits" in PRESETS
    with pytest.raises(KeyError):
        PRESETS["resnet"]


def test_importing_does_not_read_the_data():
    code = "import vit_config.presets.from_timm as p; assert not p.data.cache_info().currsize"
    subprocess.run([sys.executable, "-c", code], check=True)


# What the generator refuses


def test_the_generator_leaves_out_what_it_refuses(monkeypatch, tmp_path, capsys):
    names = {"vision_transformer": ["test_vit", "vit_giant_patch14_dinov2"]}
    monkeypatch.setattr(generator, "architectures", lambda module: names.get(module, []))
    monkeypatch.delitem(reader.UNDERSTOOD, "timm.layers.mlp.GluMlp")
    path = tmp_path / "timm.json"
    assert generator.main(generator.Options(out=path)) == 1
    assert (
        "refused vit_giant_patch14_dinov2: blocks.0.mlp is a timm.layers.mlp.GluMlp"
        in capsys.readouterr().err
    )
    data = json.loads(path.read_text())
    assert data["schemas"] == {"vision_transformer": {"test_vit": ARCHITECTURES["test_vit"]["schema"]}}
    tags = ARCHITECTURES["test_vit"]["tags"]
    assert (data["left_out"], data["tags"]) == ({}, {f"test_vit.{tag}": tags[tag] for tag in tags})


def _replace(model, name, module):
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _widen(model):
    model.blocks[1].mlp.fc1 = torch.nn.Linear(64, 300, device="meta")


CHANGES = {
    "an unknown layer": (
        lambda model: _replace(model, "norm", torch.nn.BatchNorm1d(64)),
        "norm is a torch.nn.modules.batchnorm.BatchNorm1d",
    ),
    "two activations": (
        lambda model: _replace(model, "blocks.1.mlp.act", torch.nn.ReLU()),
        "blocks differ",
    ),
    "an approximate activation": (
        lambda model: _replace(model, "blocks.1.mlp.act", torch.nn.GELU("tanh")),
        r"blocks.1.mlp.act.approximate = 'tanh', not 'none'",
    ),
    "two epsilons": (lambda model: setattr(model.norm, "eps", 1e-5), "eps of norms differ"),
    "dropout": (lambda model: setattr(model.head_drop, "p", 0.1), "head_drop.p = 0.1, not 0.0"),
    "one more tensor": (
        lambda model: model.register_parameter("scale", torch.nn.Parameter(torch.ones(3))),
        r"tensor scale of shape \(3,\), by its schema None",
    ),
    "a tensor of another shape": (_widen, "tensor blocks.1.mlp.fc1.bias of shape"),
    "a pool": (lambda model: setattr(model, "global_pool", "avgmax"), "global_pool = 'avgmax'"),
    "another scale": (
        lambda model: setattr(model.blocks[0].attn, "scale", 1.0),
        "attn.scale = 1.0",
    ),
    "a part that has moved": (lambda model: delattr(model, "fc_norm"), "no attribute 'fc_norm'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_not_understood_is_refused(change):
    built = generator.build("test_vit")
    assert built.schema == preset("test_vit")
    alter, words = CHANGES[change]
    alter(built.model)
    with pytest.raises(reader.NotUnderstoodError, match=words):
        built.schema  # noqa: B018


def test_an_unknown_argument_is_refused():
    built = generator.build("test_vit")
    with pytest.raises(reader.NotUnderstoodError, match="arguments talking_heads"):
        reader.read_schema(built.model, {*built.arguments, "talking_heads"}, {})
    with pytest.raises(reader.NotUnderstoodError, match="a checkpoint filter"):
        reader.read_schema(built.model, built.arguments, {"interpolation": "nearest"})


def _as_json(value):
    return json.loads(json.dumps(value))
