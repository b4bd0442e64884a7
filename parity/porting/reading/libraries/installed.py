"""The installed libraries that dialects belong to: their own models load and run written checkpoints."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.porting.dialects.records.open_clip_config import OWN_TOWER
from parity.porting.reading.checkpoint import Checkpoint
from vit_config import ViTConfig

SINGLE = 1e-5
"""Relative limit of logits of libraries that compute something in float32 whatever the model's type."""


DRAWING = ("uniform_", "normal_", "erfinv_", "mul_", "add_", "clamp_", "fill_", "zero_", "copy_")
"""Tensor methods that compute initial values."""


class NoModelError(Exception):
    """No installed library has a model of a checkpoint; the message says why."""


class RefusedError(Exception):
    """A library does not load a checkpoint's tensors into its own model; the message says why."""


def load_strictly(model: Any, checkpoint: Checkpoint) -> Any:
    """Load exactly a file's tensors into a model, in float64, which can hold every value.

    Raises:
        RefusedError: names or shapes differ.
    """
    from vit_torch.weights import from_numpy

    state = {name: from_numpy(stored.load()) for name, stored in checkpoint.tensors.items()}
    model = model.double()
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise RefusedError(" ".join(str(error).split())) from None
    return model


def shapes_of(tensors: Callable[[], Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a library's tensors by name, without allocating or initialising them.

    Args:
        tensors: a function that creates the tensors on PyTorch's current device.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class WithoutValues(TorchFunctionMode):
        """Skips initialisation of meta tensors, which would take most of the time."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            drawn = args and getattr(func, "__name__", "") in DRAWING
            drawn = drawn and isinstance(args[0], torch.Tensor) and args[0].is_meta
            return args[0] if drawn else func(*args, **(kwargs or {}))

    with torch.device("meta"), WithoutValues():
        return {name: tuple(tensor.shape) for name, tensor in tensors().items()}


@dataclass(frozen=True)
class Library:
    """A library that reads some dialects."""

    name: str
    package: str
    """Name of the package to import."""
    build: Callable[[Checkpoint], Any]
    """Builds the library's model for a checkpoint, by its config file or by the arguments for its
    schema, with initial values, on PyTorch's current device. Raises NoModelError."""
    load: Callable[[Checkpoint], Any] | None = None
    """Builds the model with exactly the checkpoint's tensors; by default `build` and `load_strictly`.
    Raises NoModelError and RefusedError."""
    named: Callable[[Any], Mapping[str, Any]] = lambda model: model.state_dict()
    """Returns a model's tensors by the library's names in files."""
    call: Callable[[Any, Any, ViTConfig], Any] = lambda model, images, cfg: model(images)
    """Computes logits (B, classes) of images (B, C, H, W), or pooled features without a head."""
    single: Callable[[Checkpoint], bool] = lambda checkpoint: False
    """Returns whether the library computes something in float32, whatever the model's type."""

    def shapes(self, checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that a file must have, by name; nothing is allocated.

        Raises:
            NoModelError: the library has no model of this checkpoint.
        """
        return shapes_of(lambda: self.named(self.build(checkpoint)))

    def run(self, checkpoint: Checkpoint, images: np.ndarray) -> np.ndarray:
        """Compute logits (B, classes) of images (B, H, W, C), all float64.

        Raises:
            NoModelError: the library has no model of this checkpoint.
            RefusedError: the tensors are not those of its model.
        """
        import torch

        load = self.load or (lambda checkpoint: load_strictly(self.build(checkpoint), checkpoint))
        model = load(checkpoint).double().eval()
        with torch.no_grad():
            batch = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
            return self.call(model, batch, checkpoint.config).numpy()

    def limit(self, checkpoint: Checkpoint) -> float:
        """Return the largest relative error of its logits that passes."""
        return SINGLE if self.single(checkpoint) else FLOAT64


def library_of(checkpoint: Checkpoint) -> Library:
    """Return the library that reads a checkpoint's dialect.

    Raises:
        NoModelError: there is none, or it is not installed.
    """
    library = LIBRARIES.get(checkpoint.dialect.family)
    if library is None:
        raise NoModelError(f"no installed library reads {checkpoint.dialect.name}")
    for name, package in ((library.name, library.package), ("PyTorch", "torch")):
        if not importlib.util.find_spec(package):
            raise NoModelError(f"{name} is not installed")
    return library


def misfits(checkpoint: Checkpoint, beside: Collection[str] = ()) -> list[str]:
    """Return a phrase for each name or shape in which a file differs from its library's own class.

    Args:
        beside: names that the class may lack, as those of a text tower beside the model.

    Raises:
        NoModelError: no installed library has a model of it.
    """
    library, within = library_of(checkpoint), checkpoint.dialect.within_body
    expected = within(library.shapes(checkpoint))
    actual = within({name: stored.shape for name, stored in checkpoint.container.tensors.items()})
    problems = [f"{name} is missing" for name in expected if name not in actual]
    problems += [
        f"{name} is not in {library.name}'s model"
        for name in actual
        if name not in expected and name not in beside
    ]
    return problems + [
        f"{name} is {actual[name]}, in {library.name} {shape}"
        for name, shape in expected.items()
        if name in actual and actual[name] != shape
    ]


def _torchvision(checkpoint: Checkpoint) -> Any:
    from parity.porting.reading.libraries.peers import import_timm

    cfg = checkpoint.config
    import_timm()  # declares operators where torchvision would not load without them
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        image_size=cfg.image_size[0],
        patch_size=cfg.patch_size[0],
        num_layers=cfg.depth,
        num_heads=cfg.num_heads,
        hidden_dim=cfg.hidden_size,
        mlp_dim=cfg.mlp_dim,
        num_classes=cfg.num_classes,
        representation_size=cfg.head_hidden,
    )


def _vit_pytorch(checkpoint: Checkpoint) -> Any:
    import vit_pytorch
    from vit_pytorch.simple_vit_with_register_tokens import SimpleViT as WithRegisters

    cfg, name = checkpoint.config, checkpoint.dialect.name
    options: dict[str, Any] = {
        "image_size": cfg.image_size,
        "patch_size": cfg.patch_size,
        "num_classes": cfg.num_classes,
        "dim": cfg.hidden_size,
        "depth": cfg.depth,
        "heads": cfg.num_heads,
        "mlp_dim": cfg.mlp_dim,
        "channels": cfg.in_channels,
        "dim_head": cfg.head_dim,
    }
    if name == "vit-pytorch-batched":
        raise NoModelError("the installed vit-pytorch is newer than the ViT of this file")
    if name == "simple-vit-pytorch":
        if cfg.register_tokens:
            return WithRegisters(**options, num_register_tokens=cfg.register_tokens)
        return vit_pytorch.SimpleViT(**options)
    return vit_pytorch.ViT(**options, pool="cls" if cfg.pool == "class" else "mean")


def _open_clip(checkpoint: Checkpoint) -> Any:
    """Build the image tower, as a child called ``visual`` if the file's names have this prefix."""
    import torch

    from parity.porting.reading.libraries.peers import import_timm

    import_timm()  # as above
    from open_clip.model import CLIPVisionCfg, _build_vision_tower

    settings = checkpoint.dialect.settings
    assert settings is not None
    files = checkpoint.opened.sidecars.contents or settings.files(checkpoint.config, checkpoint.metadata)
    model = files["open_clip_config.json"]["model_cfg"]
    vision = CLIPVisionCfg(**model["vision_cfg"])
    with _of("of_timm", "registered")(OWN_TOWER, checkpoint.config):  # as model.py in the folder does
        tower = _build_vision_tower(model["embed_dim"], vision, model.get("quick_gelu", False))
    if checkpoint.dialect.name == "open-clip-tower":
        return tower
    whole = torch.nn.Sequential()
    whole.add_module("visual", tower)
    return whole


def _of(module: str, step: str) -> Callable[..., Any]:
    """Return a function that imports a module of this package when called, and calls its function."""

    def call(*arguments: Any) -> Any:
        imported = importlib.import_module(f"parity.porting.reading.libraries.{module}")
        return getattr(imported, step)(*arguments)

    return call


def _turns(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.rope is not None


_ROUNDING = ("hf-siglip2", "hf-aimv2")
"""transformers' models that compute in float32 what they add to, or divide by: a resized table, an
RMSNorm."""
LIBRARIES: Mapping[str, Library] = {
    "torchvision": Library("torchvision", "torchvision", _torchvision),
    "timm": Library(
        "timm",
        "timm",
        _of("of_timm", "build"),
        call=_of("of_timm", "call"),
        single=lambda each: _turns(each) or each.config.attention == "differential",  # its lambda
    ),
    "hf": Library(
        "transformers",
        "transformers",
        _of("of_transformers", "build"),
        load=_of("of_transformers", "load"),
        named=_of("of_transformers", "name_tensors"),
        call=_of("of_transformers", "call"),
        single=lambda each: _turns(each) or each.dialect.name.startswith(_ROUNDING),
    ),
    "vit-pytorch": Library(
        "vit-pytorch",
        "vit_pytorch",
        _vit_pytorch,
        single=lambda each: each.config.pos_embed != "learned",
    ),
    "open-clip": Library("open_clip", "open_clip", _open_clip),
}
"""Libraries by family of dialects."""
