"""A published checkpoint as its own library has it: drawn and saved, or names and shapes alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from evidence.published.facts import Published
from parity.porting.opening.opened import Opened, open_checkpoint
from parity.porting.reading.libraries.installed import shapes_of
from parity.porting.reading.libraries.peers import import_timm
from tests.support.unread import unread

SPREAD = 0.05
"""Deviation of drawn values; gains are one and that."""


def names_and_shapes(one: Published, folder: Path) -> Opened:
    """The checkpoint without values; its config files are written into the folder."""
    make, named, sidecars = _parts(one)
    shapes = shapes_of(lambda: named(make()))
    if one.library == "file":
        shapes = _of_a_file(one, shapes)
    _write(folder, sidecars)
    return unread(shapes, folder, sidecars)


def drawn(one: Published, folder: Path) -> Opened:
    """The checkpoint with drawn weights, saved under its library's names, in float32."""
    make, named, sidecars = _parts(one)
    model = make()
    stream = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        gain = parameter.ndim == 1 and name.endswith(
            ("weight", "gamma", "gamma_1", "gamma_2", "lambda1")
        )
        parameter.data = SPREAD * torch.randn(parameter.shape, generator=stream) + float(gain)
    _write(folder, sidecars)
    state = {f"{one.wrapper}.{n}" if one.wrapper else n: t for n, t in named(model).items()}
    name = "open_clip_pytorch_model.bin" if one.library == "open_clip" else "pytorch_model.bin"
    torch.save({each: tensor.clone().contiguous() for each, tensor in state.items()}, folder / name)
    bare = one.library in ("torchvision", "file")
    return open_checkpoint(folder / name if bare else folder)


def _write(folder: Path, sidecars: dict[str, Any]) -> None:
    folder.mkdir()
    for name, content in sidecars.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


Parts = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]], dict[str, Any]]
"""Functions that make the model and name its tensors as in files, and the config files beside them."""


def _parts(one: Published) -> Parts:
    import_timm()
    return {
        "transformers": _transformers,
        "timm": _timm,
        "torchvision": _torchvision,
        "open_clip": _open_clip,
        "file": _timm,
    }[one.library](one)


def _state(model: Any) -> dict[str, Any]:
    return model.state_dict()


def _transformers(one: Published) -> Parts:
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    transformers.utils.logging.set_verbosity_error()
    entries = {**one.config}
    config = transformers.AutoConfig.for_model(entries.pop("model_type"), **entries)
    kind = getattr(transformers, one.kind)
    options = {"add_pooling_layer": False} if one.name.startswith("facebook/dino-") else {}
    return (
        lambda: kind(config, **options),
        lambda model: revert_weight_conversion(model, model.state_dict()),
        {"config.json": one.config},
    )


def _timm(one: Published) -> Parts:
    import timm

    code: dict[str, Any] = {**one.code}
    if "mlp_layer" in code:
        code["mlp_layer"] = getattr(timm.layers, code["mlp_layer"])
    name = one.architecture or one.name
    given = one.model_args or {}

    def make() -> Any:
        return timm.create_model(name, **given, **code)

    if one.library == "file":
        return lambda: timm.create_model(name, num_classes=0), _state, {}
    with torch.device("meta"):
        config = _hub_config(timm, timm.create_model(name, **given), one)  # without what no JSON says
    return make, _state, {"config.json": config}


def _hub_config(timm: Any, model: Any, one: Published) -> dict[str, Any]:
    """Return the config file that timm itself writes beside the weights of a model that it pushes."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "config.json"
        timm.models._hub.save_config_for_hf(model, path, model_args=one.model_args)
        return json.loads(path.read_text(encoding="utf-8"))


def _torchvision(one: Published) -> Parts:
    from torchvision.models import vision_transformer

    return lambda: getattr(vision_transformer, one.architecture)(**one.arguments), _state, {}


def _open_clip(one: Published) -> Parts:
    import open_clip
    from open_clip.model import CLIPVisionCfg, _build_vision_tower

    model = open_clip.get_model_config(one.architecture)
    assert model is not None
    vision = CLIPVisionCfg(**{**model["vision_cfg"], "timm_model_pretrained": False})

    def make() -> Any:
        whole = torch.nn.Sequential()
        tower = _build_vision_tower(model["embed_dim"], vision, model.get("quick_gelu", False))
        whole.add_module("visual", tower)
        return whole

    pixels = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic"}
    return make, _state, {"open_clip_config.json": {"model_cfg": model, "preprocess_cfg": pixels}}


def _of_a_file(one: Published, shapes: dict[str, Any]) -> dict[str, Any]:
    shapes = {**shapes, **{name: tuple(shape) for name, shape in one.changes.items()}}
    if one.decoder:
        width, inner = one.decoder["width"], shapes["pos_embed"][2]
        rows, values = shapes["pos_embed"][1], one.decoder["patch_values"]
        linear = {"decoder_embed": (width, inner), "decoder_pred": (values, width)}
        for i in range(one.decoder["depth"]):
            under = f"decoder_blocks.{i}"
            linear |= {f"{under}.attn.qkv": (3 * width, width), f"{under}.attn.proj": (width, width)}
            linear |= {f"{under}.mlp.fc1": (4 * width, width), f"{under}.mlp.fc2": (width, 4 * width)}
            linear |= {f"{under}.norm1": (width,), f"{under}.norm2": (width,)}
        linear["decoder_norm"] = (width,)
        shapes |= {f"{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
        shapes |= {"mask_token": (1, 1, width), "decoder_pos_embed": (1, rows, width)}
    return {f"{one.wrapper}.{name}" if one.wrapper else name: shape for name, shape in shapes.items()}
