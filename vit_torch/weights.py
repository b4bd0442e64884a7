"""Parameters as named numpy arrays - timm-style names, PyTorch's layout - and back."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import nn

from vit_config import TextConfig, ViTConfig
from vit_config.files.weights_file import match_arrays
from vit_torch.leaves import leaves
from vit_torch.model import ViT
from vit_torch.text import TextTower


def to_arrays(
    model: nn.Module, state: Mapping[str, torch.Tensor] | None = None
) -> dict[str, np.ndarray]:
    """Return the parameters of `model` - or tensors of the same names, such as gradients - as arrays."""
    return {
        leaf.name: to_numpy(leaf.variable if state is None else state[leaf.name])
        for leaf in leaves(model)
    }


def to_state(model: nn.Module, arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Copy arrays to a state dict of `model`, which itself stays unchanged.

    Raises:
        WeightsError: an array is missing, unexpected, of another shape or of another type than the rest.
    """
    parts = leaves(model)
    match_arrays({leaf.name: leaf.shape for leaf in parts}, arrays)
    return {leaf.name: from_numpy(arrays[leaf.name]) for leaf in parts}


def abstract_model(cfg: ViTConfig, *, kernel: str = "auto") -> ViT:
    """Build a model with shapes in place of values; nothing is allocated."""
    with torch.device("meta"):
        return ViT(cfg, kernel=kernel)


def abstract_text(cfg: TextConfig, *, kernel: str = "auto") -> TextTower:
    """Build a text tower with shapes in place of values; nothing is allocated."""
    with torch.device("meta"):
        return TextTower(cfg, kernel=kernel)


def from_arrays(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], *, kernel: str = "auto") -> ViT:
    """Build a model with the given parameters, in their type; it is in evaluation mode.

    Raises:
        WeightsError: see `to_state`.
    """
    return _filled(abstract_model(cfg, kernel=kernel), arrays)


def text_from_arrays(
    cfg: TextConfig, arrays: Mapping[str, np.ndarray], *, kernel: str = "auto"
) -> TextTower:
    """Build a text tower with the given parameters, in their type; it is in evaluation mode.

    Raises:
        WeightsError: see `to_state`.
    """
    return _filled(abstract_text(cfg, kernel=kernel), arrays)


def _filled(model: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    model.load_state_dict(to_state(model, arrays), strict=True, assign=True)
    return model.eval()


def to_numpy(tensor: torch.Tensor, *, copy: bool = True) -> np.ndarray:
    """Copy a tensor of any floating type, bit for bit; on a CPU share its memory if not `copy`."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:  # numpy has no bfloat16 of its own: carry the bits
        array = tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    else:
        array = tensor.numpy()
    return array.copy() if copy else array


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """Copy an array of any floating type to a tensor, bit for bit."""
    array = np.array(array, order="C", copy=True)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
