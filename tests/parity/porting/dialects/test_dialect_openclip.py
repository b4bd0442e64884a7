"""OpenAI's CLIP and open_clip: image towers of the installed package, there and back."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from evidence.timm_sweep.peer import float64, import_timm
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import Logits, prove, redraw, twin_logits
from tests.support.dialect_torch import logits_of, save_torch
from tests.support.share import rarely
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError, preset

import_timm()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    open_clip = import_module("open_clip")

VISION = {"image_size": 12, "patch_size": 3, "width": 30, "head_width": 6, "layers": 3, "mlp_ratio": 2.0}
TEXT = {"context_length": 5, "vocab_size": 11, "width": 64, "heads": 1, "layers": 1}
PIXELS = {
    "mean": [0.4, 0.5, 0.6],
    "std": [0.2, 0.3, 0.4],
    "interpolation": "bilinear",
    "resize_mode": "squash",
}
CLIPA = {"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}


def model_cfg(*, quick_gelu: bool = False, **vision: Any) -> dict[str, Any]:
    cfg = {"embed_dim": 7, "vision_cfg": {**VISION, **vision}, "text_cfg": TEXT}
    return {**cfg, "quick_gelu": True} if quick_gelu else cfg


def build(cfg: dict[str, Any]) -> torch.nn.Module:
    return redraw(open_clip.CLIP(**cfg))


def save_like_the_hub(model: torch.nn.Module, cfg: dict[str, Any], folder: Path) -> Path:
    """As `push_to_hf_hub` does, without its tokenizer."""
    folder.mkdir()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": cfg, "preprocess_cfg": PIXELS}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


def image_tower(folder: Path) -> Logits:
    """The tower that open_clip builds from a written config file, with the written tensors."""
    cfg = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    vision = open_clip.CLIPVisionCfg(**cfg["vision_cfg"])
    tower = open_clip.model._build_vision_tower(cfg["embed_dim"], vision, cfg["quick_gelu"])
    return logits_of(
        with_state(tower.double().eval(), load_file(folder / "open_clip_model.safetensors"))
    )


def with_state(tower: torch.nn.Module, state: dict[str, torch.Tensor]) -> torch.nn.Module:
    """A tower with the tensors of a file, whose names are those of a whole model; strictly."""
    assert all(name.startswith("visual.") for name in state)
    tower.load_state_dict({n.removeprefix("visual."): each for n, each in state.items()}, strict=True)
    return tower


VARIANTS = {
    "plain": {},
    "quick_gelu": {"quick_gelu": True},
    "layer scale": {"ls_init_value": 0.1},
    "oblong": {"image_size": (12, 9)},
    "mean": {"pool_type": "avg"},
    "norm after the class token": {"final_ln_after_pool": True},
    "no norm before": {"no_ln_pre": True},
    "tanh": {"act_kwargs": {"approximate": "tanh"}, "norm_kwargs": {"eps": 1e-6}},
}


@pytest.mark.parametrize(
    "name", rarely(VARIANTS, ("quick_gelu", "oblong", "norm after the class token", "tanh"))
)
def test_open_clip(name, tmp_path):
    """The text tower is left out; the config file says all the rest."""
    cfg = model_cfg(**VARIANTS[name])
    model = build(cfg)
    saved = save_like_the_hub(model, cfg, tmp_path / "hub")
    prove(saved, logits_of(model.visual), to="open-clip", out=tmp_path / "back", reload=image_tower)
    source = read_checkpoint(saved)
    assert any("text_projection" in note or "token_embedding" in note for note in source.notes)
    assert (source.preprocess.std, source.preprocess.crop_mode) == ((0.2, 0.3, 0.4), "squash")
    written = json.loads((tmp_path / "back" / "open_clip_config.json").read_text())
    assert written["preprocess_cfg"] == PIXELS


def test_clipa(tmp_path):
    """No norm before the first block, and one of the mean of the patches."""
    cfg = model_cfg(**CLIPA)
    model = build(cfg)
    prove(
        save_like_the_hub(model, cfg, tmp_path / "hub"),
        logits_of(model.visual),
        to="open-clip-norm-after-mean",
        out=tmp_path / "back",
        reload=image_tower,
    )


def test_without_a_config_file_is_asked_what_it_would_say(tmp_path):
    model = build(model_cfg())
    saved = save_torch(model, tmp_path)
    with pytest.raises(ConfigError, match="cannot infer num_heads, norm_eps, act, pool"):
        read_checkpoint(saved)
    given = {"num_heads": 5, "norm_eps": 1e-5, "act": "gelu", "pool": "class"}
    assert read_checkpoint(saved, given=given).dialect.name == "open-clip"
    with pytest.raises(
        ConfigError, match=r"cannot infer act; .*; its tensors are .*; choose .* by --dialect"
    ):
        read_checkpoint(saved, given={"num_heads": 5, "norm_eps": 1e-5, "pool": "mean"})
    torch.save(model.visual.state_dict(), tmp_path / "tower.pt")
    prove(
        tmp_path / "tower.pt",
        logits_of(model.visual),
        to="open-clip-tower",
        out=tmp_path / "back.pt",
        reload=lambda path: reloaded(build(model_cfg()).visual, path),
        given=given,
    )


def reloaded(tower: torch.nn.Module, path: Path) -> Logits:
    tower.load_state_dict(torch.load(path, weights_only=True), strict=True)
    return logits_of(tower)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attentional_pool": True, "attn_pooler_heads": 7}, "pools by attention"),
        ({"qk_norm": True}, "are unknown to open-clip: .*attn.ln_k"),
        ({"scaled_cosine_attn": True}, "are unknown to open-clip: .*attn.logit_scale"),
        ({"pool_type": "none"}, "pool_type = 'none'"),
    ],
)
def test_what_is_not_converted(options, said, tmp_path):
    cfg = model_cfg(**options)
    with pytest.raises((ConfigError, WeightsError), match=said):
        read_checkpoint(save_like_the_hub(build(cfg), cfg, tmp_path / "hub"))


def test_a_config_of_something_else_is_refused(tmp_path):
    cfg = model_cfg()
    saved = save_like_the_hub(build(cfg), cfg, tmp_path / "hub")
    config = {"model_cfg": {**cfg, "vision_cfg": {**cfg["vision_cfg"], "attentional_pool": True}}}
    (saved / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="vision_cfg has attentional_pool, which is not converted"):
        read_checkpoint(saved)
    config["model_cfg"]["vision_cfg"] = {**cfg["vision_cfg"], "head_width": 0}
    (saved / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="not a config of open_clip"):
        read_checkpoint(saved)


class Archive(torch.nn.Module):
    """What OpenAI publishes: a TorchScript archive of the model in half precision, and three numbers."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        for name, parameter in model.named_parameters():
            place: torch.nn.Module = self
            *path, leaf = name.split(".")
            for each in path:
                if not hasattr(place, each):
                    place.add_module(each, torch.nn.Module())
                place = getattr(place, each)
            place.register_parameter(leaf, parameter)
        for name, number in {"input_resolution": 12, "context_length": 5, "vocab_size": 11}.items():
            self.register_buffer(name, torch.tensor(number))


OPENAI = {"width": 128, "head_width": 64, "mlp_ratio": 4.0}


def openai_model() -> torch.nn.Module:
    return build(model_cfg(quick_gelu=True, **OPENAI))


def tower_of(state: dict[str, torch.Tensor]) -> torch.nn.Module:
    """The image tower that open_clip's reader of OpenAI's files makes of a state dict."""
    model = open_clip.openai.build_model_from_openai_state_dict(dict(state), cast_dtype=torch.float64)
    return model.visual.double().eval()


def test_openai(tmp_path):
    """Everything is known from the file: heads are 64 wide, and the activation is the quick one."""
    model = openai_model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.script(Archive(model)), tmp_path / "saved.pt")
    text = {n: each for n, each in model.state_dict().items() if not n.startswith("visual.")}

    def reload(path: Path) -> Logits:
        state = torch.load(path, weights_only=True)
        assert state.pop("input_resolution") == 12
        return logits_of(with_state(tower_of({**text, **state}), state))

    reference = logits_of(model.visual)
    prove(tmp_path / "saved.pt", reference, to="clip", out=tmp_path / "back.pt", reload=reload)
    source = read_checkpoint(tmp_path / "saved.pt")
    cfg = source.config
    assert (cfg.num_heads, cfg.act, cfg.norm_eps) == (2, "quick_gelu", 1e-5)
    assert source.preprocess.mean[0] == 0.48145466
    assert any("left out" in note for note in source.notes)


def test_openai_in_half_precision(tmp_path):
    """Norms stayed in float32; tensors of two types are all kept in the wider one, and that is said."""
    state = openai_model().state_dict()
    state = {n: each.float() if ".ln_" in n else each.half() for n, each in state.items()}
    torch.save(state, tmp_path / "half.pt")
    source = read_checkpoint(tmp_path / "half.pt", dialect="clip")
    assert {str(each.dtype) for each in source.arrays.values()} == {"float32"}
    assert any("widened float16 to float32" in note for note in source.notes)


def test_openai_cannot_say_other_heads(tmp_path):
    cfg = model_cfg()
    saved = save_like_the_hub(build(cfg), cfg, tmp_path / "hub")
    convert(saved, to="parity", out=tmp_path / "own.safetensors")
    with pytest.raises(ConfigError, match=r"clip cannot hold this model: act = gelu"):
        convert(tmp_path / "own.safetensors", to="clip", out=tmp_path / "no.pt")
    quick = model_cfg(quick_gelu=True)
    saved = save_like_the_hub(build(quick), quick, tmp_path / "quick")
    with pytest.raises(ConfigError, match=r"its heads are 64 wide"):
        convert(saved, to="clip", out=tmp_path / "no.pt")


@pytest.mark.parametrize(
    "options",
    [
        {"timm_model_name": "test_vit", "timm_pool": "avg", "timm_proj": "linear"},
        {"timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": "none"},
        {
            "timm_model_name": "test_vit3",
            "timm_pool": "map",
            "timm_proj": "linear",
            "timm_proj_bias": True,
        },
    ],
    ids=lambda options: options["timm_pool"],
)
def test_a_tower_of_timm(options, tmp_path):
    """Its architecture is a name; what is behind it, projection and pooling, is open_clip's."""
    cfg: dict[str, Any] = {
        "embed_dim": 64 if options["timm_proj"] == "none" else 7,
        "text_cfg": TEXT,
    }
    cfg["vision_cfg"] = {"image_size": 160, **options}
    with float64():
        model = build(cfg)
        saved = save_like_the_hub(model, cfg, tmp_path / "hub")
        source = read_checkpoint(saved)
        assert source.dialect.name == "open-clip-timm"
        assert source.config.num_classes == (0 if options["timm_proj"] == "none" else 7)
        convert(source, to="parity", out=tmp_path / "own.safetensors")
        images = np.random.default_rng(0).standard_normal((1, 3, 160, 160))
        expected = logits_of(model.visual)(images)
    for logits in twin_logits(tmp_path / "own.safetensors", images).values():
        assert error(logits, expected) < 1e-12
    with pytest.raises(ConfigError, match="open-clip-timm is only read"):
        convert(source, to="open-clip-timm", out=tmp_path / "no")


def test_a_tower_of_timms_eva(tmp_path):
    """EVA-02's queries, keys and values have projections of their own."""
    eva = "eva02_tiny_patch14_224"
    cfg = {
        "embed_dim": 7,
        "text_cfg": TEXT,
        "vision_cfg": {"timm_model_name": eva, "timm_pool": "token"},
    }
    model = open_clip.CLIP(**cfg)
    source = read_checkpoint(save_like_the_hub(model, cfg, tmp_path / "hub"))
    assert (source.dialect.name, source.config.num_classes) == ("open-clip-timm", 7)
    cfg = preset(eva).replace(pool="class", num_classes=7, head_bias=False)
    assert source.config.replace(final_norm=cfg.final_norm) == cfg
