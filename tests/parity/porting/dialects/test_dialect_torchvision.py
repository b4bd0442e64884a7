"""torchvision's ``VisionTransformer``: real models, there and back."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import prove, redraw
from tests.support.dialect_torch import logits_of, save_torch, strictly
from vit_config import ConfigError, ViTConfig, WeightsError

import_timm()
vision_transformer = import_module("torchvision.models.vision_transformer")

WIDTHS = {"num_heads": 5, "hidden_dim": 30, "mlp_dim": 22}
SMALL = {"image_size": 12, "patch_size": 3, "num_layers": 3, **WIDTHS}
HEADS = {"num_heads": 5}


def build(**options) -> torch.nn.Module:
    return redraw(vision_transformer.VisionTransformer(**{**SMALL, "num_classes": 7, **options}))


@pytest.mark.parametrize("options", [{}, {"representation_size": 11}])
def test_there_and_back(options, tmp_path):
    """With the layer before the head too, that the pre-trained models had."""
    model = build(**options)
    prove(
        save_torch(model, tmp_path),
        logits_of(model),
        to="torchvision",
        out=tmp_path / "back.pth",
        reload=strictly(lambda: build(**options)),
        given=HEADS,
    )


def test_files_older_than_the_mlp_of_today(tmp_path):
    """torchvision itself renames them when it loads."""
    model = build()
    new = {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}
    state = {}
    for name, value in model.state_dict().items():
        for now, then in new.items():
            name = name.replace(now, then)
        state[name] = value
    torch.save(state, tmp_path / "old.pth")
    convert(tmp_path / "old.pth", to="torchvision", out=tmp_path / "new.pth", given=HEADS)
    written = torch.load(tmp_path / "new.pth", weights_only=True)
    assert written.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(written[name], value), name


def test_heads_are_asked_for_at_its_own_widths_too(tmp_path):
    with torch.device("meta"):
        model = vision_transformer.VisionTransformer(224, 32, 1, 12, 768, 3072)
    path = save_torch(model.to_empty(device="cpu"), tmp_path)
    with pytest.raises(ConfigError, match="cannot infer num_heads; give --set num_heads="):
        read_checkpoint(path)
    source = read_checkpoint(path, given={"num_heads": 12})
    assert source.config == ViTConfig(patch_size=32, depth=1, pos_embed_resize="bicubic")
    assert source.origins["norm_eps"] == "code of torchvision"


def test_other_heads(tmp_path):
    """A layer in place of all is the head; of several, or behind others, it is not dropped unasked."""
    model, linear = build(), torch.nn.Linear(30, 5)
    for heads, classes in ((linear, 5), (torch.nn.Identity(), 0)):
        model.heads = heads
        assert read_checkpoint(save_torch(model, tmp_path), given=HEADS).config.num_classes == classes
    for heads in ([torch.nn.Dropout(), linear], [torch.nn.Linear(30, 30), torch.nn.ReLU(), linear]):
        model.heads = torch.nn.Sequential(*heads)
        path, out = save_torch(model, tmp_path), tmp_path / f"{len(heads)}.safetensors"
        with pytest.raises(ConfigError, match=r"its classifier, heads.* --num-classes 0 takes it off"):
            convert(path, to="parity", out=out, given=HEADS)
        convert(path, to="parity", out=out, given=HEADS, num_classes=0)


def test_a_stem_of_convolutions_is_refused(tmp_path):
    stem = [vision_transformer.ConvStemConfig(8, 3, 3)]
    with pytest.raises(WeightsError, match=r"conv_proj\.conv_bn_relu_0.* a stem of convolutions"):
        read_checkpoint(save_torch(build(conv_stem_configs=stem), tmp_path), given=HEADS)


def test_what_it_cannot_say(tmp_path):
    convert(save_torch(build(), tmp_path), to="parity", out=tmp_path / "own.safetensors", given=HEADS)
    source = read_checkpoint(tmp_path / "own.safetensors")
    with pytest.raises(ConfigError, match=r"num_classes = 0 .torchvision has a number"):
        convert(source, to="torchvision", out=tmp_path / "no.pth", num_classes=0)
    with pytest.raises(ConfigError, match="its images and patches are square"):
        convert(source, to="torchvision", out=tmp_path / "no.pth", image_size=(12, 9))
