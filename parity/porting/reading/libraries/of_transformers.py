"""Builds, loads and runs transformers' own model of a checkpoint.

Classes for masked images, for pairs of towers and for backbones contain an image encoder, which is the
part that a checkpoint holds and that is run. For a larger model, such as LLaVA, it is the module that
this model builds for its tower; nothing else of it gets memory, except the other tower of a pair
(OWL-ViT, CLIPSeg).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.reading.libraries.installed import NoModelError, RefusedError
from vit_config import ConfigError, ViTConfig

T = TypeVar("T")


def build(checkpoint: Checkpoint) -> Any:
    """Build a model, with initial values, of the class that config.json names.

    Raises:
        NoModelError: there is no such class, or the class is unknown.
    """
    kind, config = _kind(checkpoint)
    return kind(config, **_options(kind, checkpoint.config))


def load(checkpoint: Checkpoint) -> Any:
    """Load the model by `from_pretrained`; every tensor of the encoder has to be there.

    Raises:
        NoModelError: see `build`.
        RefusedError: tensors are missing, left over or of another shape.
    """
    kind, config = _kind(checkpoint)
    given: dict[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    inside, place = _is_inside(checkpoint), checkpoint.place
    tensors = checkpoint.container.tensors
    if hasattr(config, "vision_config"):  # both towers of a pair, by the names that the file has
        tensors = _under(place.branch, tensors)
    elif inside or place.branch:
        tensors = checkpoint.dialect.with_body(place.tensors)
    if _is_folder(checkpoint) and not inside:
        where = checkpoint.path
    else:
        from vit_torch.weights import from_numpy

        where = None
        given["state_dict"] = {name: from_numpy(each.load()) for name, each in tensors.items()}
    options = _options(kind, checkpoint.config)
    with _quietly():
        model, report = kind.from_pretrained(where, config=config, **given, **options)
    ignored = len(tensors) > len(checkpoint.tensors)
    wrong = [
        f"{what.removesuffix('_keys')}: {', '.join(map(str, sorted(report[what])[:6]))}"
        for what in ("missing_keys", "mismatched_keys", "unexpected_keys")
        if report[what] and not (ignored and what == "unexpected_keys")
    ]
    if wrong:
        raise RefusedError(f"{kind.__name__} does not load it strictly ({'; '.join(wrong)})")
    return model


def name_tensors(model: Any) -> dict[str, Any]:
    """Return a model's tensors by the names that `save_pretrained` gives them."""
    from transformers.core_model_loading import revert_weight_conversion

    return revert_weight_conversion(model, model.state_dict())


def call(model: Any, images: Any, cfg: ViTConfig) -> Any:
    """Compute logits (B, classes) of images (B, C, H, W), or the pooled vector without a head."""
    import torch

    name, inputs = type(model).__name__, {"pixel_values": images}
    if name.startswith("Siglip2"):
        inputs = _flattened(images, cfg)
    if name.startswith("Gemma4"):
        return _soft_tokens(model, images, cfg)
    if name.startswith("VideoMAE"):
        inputs = {"pixel_values": images[:, None]}  # (B, frames, C, H, W)
    if name.startswith("ViTMAE"):  # no patch is masked, and their order is kept
        model.config.mask_ratio = 0.0
        inputs["noise"] = torch.arange(cfg.num_patches).expand(len(images), -1).double()
    if hasattr(model, "visual_projection") and not cfg.num_classes:
        model = model.vision_model  # OWL-ViT's tower is read without the pair's projection
    if hasattr(model, "get_image_features"):
        return model.get_image_features(**inputs).pooler_output
    if name.endswith(("ForMaskedImageModeling", "ForPreTraining")):
        model = model.base_model
    output = model(**inputs)
    parts = (
        "logits",
        "image_embeds",
        *([] if "Blip" in name or name.startswith("Janus") else ["pooler_output"]),
    )
    for part in parts:
        if getattr(output, part, None) is not None:
            return getattr(output, part)
    tokens = output.last_hidden_state
    return tokens[:, 0] if cfg.class_token else tokens.mean(dim=1)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence transformers' messages and progress bars."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _kind(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Return a class and its config; for a single file, those of the folder that it would be in."""
    from parity.porting.reading.libraries.peers import import_timm

    import_timm()  # transformers imports torchvision, which may not load without it
    import transformers

    if _is_folder(checkpoint):
        config = transformers.AutoConfig.from_pretrained(checkpoint.path)
        if _is_inside(checkpoint):
            module = _tower(_class_of(config), config, checkpoint)
            inner = type(module)
            is_backbone = "Backbone" in inner.__name__
            return _class_of(module.config, inner.__name__) if is_backbone else inner, module.config
    else:
        settings = checkpoint.dialect.settings
        assert settings is not None
        try:
            entries = dict(settings.files(checkpoint.config, checkpoint.metadata)["config.json"])
        except ConfigError as error:
            raise NoModelError(str(error)) from None
        config = transformers.AutoConfig.for_model(entries.pop("model_type"), **entries)
    return _class_of(config), config


def _class_of(config: Any, name: str | None = None) -> Any:
    """Return a class by name, else the one that a config names, else the base class of the config."""
    import transformers

    name = name or (config.architectures or ["AutoModel"])[0]
    if name == "AutoModel":
        name = transformers.MODEL_MAPPING[type(config)].__name__  # pyright: ignore
    name = str(name).replace(
        "Backbone", "Model"
    )  # a backbone has the same tensors but returns feature maps
    if not hasattr(transformers, name):
        raise NoModelError(f"the installed transformers has no class {name}")
    return getattr(transformers, name)


def _is_inside(checkpoint: Checkpoint) -> bool:
    """Return whether config.json is of a larger model that the tensors are a part of."""
    place = checkpoint.place
    elsewhere = len(checkpoint.container.tensors) > len(place.tensors)
    under = checkpoint.opened.tower and place.branch  # else the head is the larger model's
    return _is_folder(checkpoint) and bool(elsewhere or under)


def _tower(kind: Any, config: Any, checkpoint: Checkpoint) -> Any:
    """Return the module of a larger model that a checkpoint holds, on the meta device.

    Raises:
        NoModelError: there is none, or there are several and not one by the checkpoint's name.
    """
    import torch
    import transformers

    with torch.device("meta"):
        host = kind(config)
    if host.base_model is not host and config.model_type == checkpoint.opened.sidecars.model_type:
        return host.base_model
    kinds = getattr(checkpoint.dialect.settings, "model_types", ())
    modules: dict[str, Any] = {}
    for name, module in host.named_modules():
        if not name or not isinstance(module, transformers.PreTrainedModel):
            continue
        fits = module.config.model_type in kinds and not hasattr(module.config, "vision_config")
        if fits and not any(name.startswith(f"{outer}.") for outer in modules):
            modules[name] = module
    keys = checkpoint.place.branch.split(".")
    if len(modules) > 1:
        modules = {name: module for name, module in modules.items() if name.split(".")[-1] in keys}
    if len(modules) != 1:
        raise NoModelError(f"transformers' {kind.__name__} has no module that is {keys[-1]!r} alone")
    return next(iter(modules.values()))


def _under(branch: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the tensors under a prefix, by the rest of their names; all if the prefix is empty."""
    prefix = f"{branch}." if branch else ""
    return {name[len(prefix) :]: each for name, each in tensors.items() if name.startswith(prefix)}


def _is_folder(checkpoint: Checkpoint) -> bool:
    """Return whether a folder's own files are the model; a merged adapter is not among them."""
    return checkpoint.adapter is None and (checkpoint.path / "config.json").is_file()


def _options(kind: Any, cfg: ViTConfig) -> dict[str, Any]:
    """Return arguments that leave out the pooler, which a config cannot, if the schema has none."""
    pools = cfg.head_hidden is not None or cfg.final_norm == "post_pool"
    takes = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    return {"add_pooling_layer": False} if takes and not pools else {}


def _soft_tokens(model: Any, images: Any, cfg: ViTConfig) -> Any:
    """Compute Gemma 4's pooled tokens (B, T, D); it takes patches, and returns one sequence."""
    import torch

    rows, columns = (torch.arange(side) for side in cfg.grid)
    places = torch.cartesian_prod(rows, columns).flip(1)  # (N, 2): column and row
    pixels = _flattened(images, cfg)["pixel_values"]
    output = model(pixel_values=pixels, pixel_position_ids=places.expand(len(images), -1, -1))
    return output.last_hidden_state.reshape(len(images), -1, cfg.hidden_size)


def _flattened(images: Any, cfg: ViTConfig) -> dict[str, Any]:
    """Split images into patches (B, N, values), each as (row, column, channel), for SigLIP 2."""
    import torch

    B, C, _, _ = images.shape
    (rows, columns), (height, width) = cfg.grid, cfg.patch_size
    patches = images.reshape(B, C, rows, height, columns, width).permute(0, 2, 4, 3, 5, 1)
    return {
        "pixel_values": patches.reshape(B, rows * columns, -1),
        "pixel_attention_mask": torch.ones(B, rows * columns, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[rows, columns]] * B),
    }
