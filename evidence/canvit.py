"""Two Vision Transformers by other hands, each a plain function that closes over its model.

    pip install canvit-pytorch==0.2.0 canvit-nnx==0.2.0       # Python 3.12 and JAX 0.11.2 at least
    parity diff evidence/canvit.py:original evidence/canvit.py:port  # DIFFERENT; the buffer is named
    parity diff evidence/canvit.py:original evidence/canvit.py:carried  # EQUAL

Both draw the frequencies of their viewpoints for themselves, each by its own framework's generator; a
port that carries over the parameters alone misses that buffer. Both demand float32.
"""

# installed by who tries it
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import canvit_core.backbone as backbones
import jax.numpy as jnp
import numpy as np
import torch
from canvit_core.config import CanViTConfig
from canvit_nnx.model.canvit import CanViT as Port
from canvit_nnx.viewpoint import Viewpoint as PortViewpoint
from canvit_pytorch.model.canvit import CanViT as Original
from canvit_pytorch.viewpoint import Viewpoint
from flax import nnx

BATCH, SIDE, GRID = 2, 16, 5
SIZES = {"embed_dim": 48, "num_heads": 3, "num_blocks": 4, "patch_size": 4}


def original() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """The model of canvit-pytorch, drawn."""
    model = _original()

    def look(image: torch.Tensor, centers: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
        state = model.init_state(batch_size=BATCH, canvas_grid_size=GRID)
        view = Viewpoint(centers=centers, scales=scales)
        return _results(model(glimpse=image.permute(0, 3, 1, 2), state=state, viewpoint=view))

    return look, tuple(map(torch.from_numpy, _inputs()))


def port() -> tuple[Callable[..., Any], tuple[np.ndarray, ...]]:
    """The model of canvit-nnx with the parameters carried over, and nothing else."""
    return _look(_port()), _inputs()


def carried() -> tuple[Callable[..., Any], tuple[np.ndarray, ...]]:
    """The same, and the buffer too."""
    model = _port()
    model.vpe.frequencies[...] = jnp.asarray(_original().vpe.frequencies.numpy())
    return _look(model), _inputs()


def _look(model: Port) -> Callable[..., Any]:
    def look(image: Any, centers: Any, scales: Any) -> dict[str, Any]:
        state = model.init_state(batch_size=BATCH, canvas_grid_size=GRID)
        view = PortViewpoint(centers=centers, scales=scales)
        return _results(model(glimpse=image, state=state, viewpoint=view))

    return look


def _results(output: Any) -> dict[str, Any]:
    return {
        "canvas": output.state.canvas, "class": output.state.recurrent_cls,
        "patches": output.glimpse_patches, "viewpoint": output.vpe,
    }  # fmt: skip


def _inputs() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(7)
    shapes = (BATCH, SIDE, SIDE, 3), (BATCH, 2)
    images, centers = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return images, 0.2 * centers, np.array([0.5, 0.75], np.float32)


def _config() -> CanViTConfig:
    backbones.BACKBONES["tiny"] = backbones.ViTSpec(**SIZES)
    return CanViTConfig(backbone_name="tiny", canvas_num_heads=2, canvas_head_dim=8,
                        num_canvas_registers=3, num_backbone_registers=2)  # fmt: skip


def _original() -> Original:
    model = Original(_config()).eval()
    drawn = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(0.2 * drawn.standard_normal(tuple(parameter.shape))))
    return model


def _port() -> Port:
    """Flax's kernels are PyTorch's weights with the axes of inputs and outputs exchanged."""
    given = {name: each.detach().numpy() for name, each in _original().named_parameters()}
    model = Port(_config(), rngs=nnx.Rngs(0))
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        *module, leaf = map(str, path)
        name = ".".join([*module, {"kernel": "weight", "scale": "weight"}.get(leaf, leaf)])
        value = given[name] if name in given else given[".".join(map(str, path))]
        if leaf == "kernel":
            value = value.T if value.ndim == 2 else value.transpose(2, 3, 1, 0)
        variable[...] = jnp.asarray(value)
    return model
