"""The libraries that dialects belong to, as far as they are installed: the judges of what is written."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.porting.checkpoint import Checkpoint
from vit_config import ViTConfig

SINGLE = 1e-5
"""How far logits may be from the twins' where a library computes something in float32, whatever the type
of its model."""


DRAWING = ("uniform_", "normal_", "erfinv_", "mul_", "add_", "clamp_", "fill_", "zero_", "copy_")
"""Methods of tensors that initial values are made by."""


class NoModelError(Exception):
    """Why a library has no model of a checkpoint here, in words."""


class RefusedError(Exception):
    """Why a library does not load the tensors of a checkpoint into its own model of it, in words."""


def load_strictly(model: Any, checkpoint: Checkpoint) -> Any:
    """The model with exactly the tensors of a file, in float64, which holds every value of theirs.

    Raises:
        RefusedError: other names or other shapes.
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
    """The shapes of a library's tensors, by name; nothing is allocated or drawn.

    Args:
        tensors: makes them, on PyTorch's current device.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class WithoutValues(TorchFunctionMode):
        """Does not draw what has no values; drawing on the meta device takes most of the time."""

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
    """What has to be installed."""
    build: Callable[[Checkpoint], Any]
    """Its own model for a checkpoint - of its config file, or of the arguments that its schema means -
    freshly drawn, on PyTorch's current device. Raises NoModelError."""
    load: Callable[[Checkpoint], Any] | None = None
    """The same with the checkpoint's tensors, none missing and none left over; by default `build` and
    `load_strictly`. Raises NoModelError and RefusedError."""
    named: Callable[[Any], Mapping[str, Any]] = lambda model: model.state_dict()
    """A model's tensors by the names that the library gives them in files."""
    call: Callable[[Any, Any, ViTConfig], Any] = lambda model, images, cfg: model(images)
    """Logits (B, classes) of images (B, C, H, W), or what a head would see."""
    single: Callable[[Checkpoint], bool] = lambda checkpoint: False
    """Whether it computes something in float32, whatever the type of the model."""

    def shapes(self, checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
        """The tensors that a file of this library's must have, by name; nothing is allocated.

        Raises:
            NoModelError: it has no model of this checkpoint.
        """
        return shapes_of(lambda: self.named(self.build(checkpoint)))

    def run(self, checkpoint: Checkpoint, images: np.ndarray) -> np.ndarray:
        """Logits (B, classes) of images (B, H, W, C), all float64.

        Raises:
            NoModelError: it has no model of this checkpoint.
            RefusedError: the tensors are not those of its model.
        """
        import torch

        load = self.load or (lambda checkpoint: load_strictly(self.build(checkpoint), checkpoint))
        model = load(checkpoint).double().eval()
        with torch.no_grad():
            batch = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
            return self.call(model, batch, checkpoint.config).numpy()

    def limit(self, checkpoint: Checkpoint) -> float:
        """How far its logits may be from the twins'."""
        return SINGLE if self.single(checkpoint) else FLOAT64


def library_of(checkpoint: Checkpoint) -> Library:
    """The library that reads a checkpoint's dialect.

    Raises:
        NoModelError: there is none, or it is not installed.
    """
    found = LIBRARIES.get(checkpoint.dialect.family)
    if found is None:
        raise NoModelError(f"no installed library reads {checkpoint.dialect.name}")
    if not importlib.util.find_spec(found.package):
        raise NoModelError(f"{found.name} is not installed")
    return found


def misfits(checkpoint: Checkpoint) -> list[str]:
    """In which names and shapes a file differs from what its library's own class has, a phrase each.

    Raises:
        NoModelError: no library here has a model of it.
    """
    library, within = library_of(checkpoint), checkpoint.dialect.within_body
    expected = within(library.shapes(checkpoint))
    found = within({name: stored.shape for name, stored in checkpoint.container.tensors.items()})
    problems = [f"{name} is missing" for name in expected if name not in found]
    problems += [f"{name} is not in {library.name}'s model" for name in found if name not in expected]
    return problems + [
        f"{name} is {found[name]}, in {library.name} {shape}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]


def _torchvision(checkpoint: Checkpoint) -> Any:
    from parity.porting.verification.peers import import_timm

    cfg = checkpoint.config
    import_timm()  # declares the operators without which torchvision does not load here
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
    """The whole image tower, as a child called ``visual`` where the file calls it so."""
    import torch

    from parity.porting.verification.peers import import_timm

    import_timm()  # as above
    from open_clip.model import CLIPVisionCfg, _build_vision_tower

    settings = checkpoint.dialect.settings
    assert settings is not None
    told = checkpoint.opened.sidecars.contents or settings.files(checkpoint.config, checkpoint.metadata)
    model = told["open_clip_config.json"]["model_cfg"]
    tower = _build_vision_tower(
        model["embed_dim"], CLIPVisionCfg(**model["vision_cfg"]), model.get("quick_gelu", False)
    )
    if checkpoint.dialect.name == "open-clip-tower":
        return tower
    whole = torch.nn.Sequential()
    whole.add_module("visual", tower)
    return whole


def _of(module: str, step: str) -> Callable[..., Any]:
    """A function of a library's module here, which is loaded when it is called."""

    def call(*arguments: Any) -> Any:
        found = importlib.import_module(f"parity.porting.verification.{module}")
        return getattr(found, step)(*arguments)

    return call


def _turns(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.rope is not None


LIBRARIES: Mapping[str, Library] = {
    "torchvision": Library("torchvision", "torchvision", _torchvision),
    "timm": Library(
        "timm", "timm", _of("library_timm", "build"), call=_of("library_timm", "call"), single=_turns
    ),
    "hf": Library(
        "transformers",
        "transformers",
        _of("library_transformers", "build"),
        load=_of("library_transformers", "load"),
        named=_of("library_transformers", "named"),
        call=_of("library_transformers", "call"),
        single=lambda each: _turns(each) or each.dialect.name.startswith("hf-siglip2"),
    ),
    "vit-pytorch": Library(
        "vit-pytorch",
        "vit_pytorch",
        _vit_pytorch,
        single=lambda each: each.config.pos_embed != "learned",
    ),
    "open-clip": Library("open_clip", "open_clip", _open_clip),
}
"""By the family of dialects."""
