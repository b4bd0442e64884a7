"""With which number training began is no matter for a trained model: real config files at real size."""

import json

import pytest

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.installed import misfits, shapes_of
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion_plan import plan
from parity.porting.writing.reopened import compare
from tests.support.convert_cases import arrays_of, refused
from tests.support.tiny import TINY
from tests.support.unread import as_written, unread
from vit_config import preset, write_weights
from vit_config.parameters import parameters

NAME = "vit_small_patch14_dinov2"
DINOV2 = {"model_type": "dinov2", "architectures": ["Dinov2Model"], "image_size": 518, "patch_size": 14,
          "hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12, "mlp_ratio": 4,
          "layer_norm_eps": 1e-6, "layerscale_value": 1.0, "hidden_act": "gelu"}  # fmt: skip
BASE = {**DINOV2, "hidden_size": 768, "num_attention_heads": 12}
BACKBONE = {**DINOV2, "architectures": ["Dinov2Backbone"], "out_features": ["stage12"],
            "reshape_hidden_states": False, "apply_layernorm": True}  # fmt: skip
PUBLISHED = {
    "dinov2-small": DINOV2,
    "dinov2-base": BASE,
    "dinov2-small, one layer": {
        **DINOV2,
        "architectures": ["Dinov2ForImageClassification"],
        "id2label": {str(index): f"class {index}" for index in range(1000)},
    },
    "dinov3-vits16": {
        "model_type": "dinov3_vit", "architectures": ["DINOv3ViTModel"], "image_size": 224,
        "patch_size": 16, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6,
        "num_hidden_layers": 12, "num_register_tokens": 4, "layerscale_value": 1.0,
        "layer_norm_eps": 1e-5, "rope_theta": 100.0, "key_bias": False, "hidden_act": "gelu",
    },
    "Depth Anything, small": {
        "model_type": "depth_anything", "architectures": ["DepthAnythingForDepthEstimation"],
        "backbone_config": BACKBONE, "fusion_hidden_size": 64, "neck_hidden_sizes": [48, 96, 192, 384],
        "reassemble_hidden_size": 384,
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_size_goes_to_timm_and_back(name, tmp_path):
    """timm has an architecture of just this size, which begins with another number."""
    import_timm()
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    config = PUBLISHED[name]
    kind = getattr(transformers, config["architectures"][0])
    entries = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **entries)

    def tensors():
        model = kind(made)
        return revert_weight_conversion(model, model.state_dict())

    source = read_checkpoint(unread(shapes_of(tensors), tmp_path, {"config.json": config}))
    assert source.config.layer_scale == 1.0
    options = {"num_classes": 0} if source.config.pool == "class_mean" else {}
    target = plan(source, "timm", **options)
    there = read_checkpoint(as_written(target, tmp_path / "timm"))
    arguments = json.loads((tmp_path / "timm/config.json").read_text())["model_args"]
    assert arguments["init_values"] == 1.0
    assert misfits(there) == []
    compare(there, target)
    shapes, sidecars = _shapes(there.tensors), there.opened.sidecars.contents
    compare(read_checkpoint(unread(shapes, tmp_path / "timm", sidecars)), target)
    back = plan(there, "hf")
    assert back.state.config.layer_scale == 1.0
    own, actual = (_shapes(side.tensors) for side in (source, back))
    assert actual == {n: shape for n, shape in own.items() if not options or "classifier" not in n}


def _shapes(tensors):
    """By name, without a mask token, which is left out of what is read and made anew."""
    shapes = {name.removeprefix("dinov2."): each.shape for name, each in tensors.items()}
    return {name: shape for name, shape in shapes.items() if not name.endswith("mask_token")}


def test_a_number_is_no_contradiction_but_none_at_all_is(tmp_path, capsys):
    cfg = preset(NAME)
    shapes = {name: each.shape for name, each in parameters(cfg).items()}
    config = {"architecture": NAME, "num_classes": 0, "pretrained_cfg": {}, "model_args": {}}
    opened = unread(shapes, tmp_path, {"config.json": {**config, "model_args": {"init_values": 0.5}}})
    for like in (None, NAME):
        assert read_checkpoint(opened, like=like).config.replace(layer_scale=1e-5) == cfg
    path = tmp_path / "own.safetensors"
    cfg = TINY.replace(layer_scale=1e-5)
    write_weights(path, cfg, arrays_of(cfg))
    refused(
        capsys,
        tmp_path,
        ["blocks.1.ls1.gamma: unexpected"],
        "inspect",
        path,
        "--override",
        "layer_scale=null",
    )
