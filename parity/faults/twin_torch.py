"""The PyTorch twin's operations for faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from parity.faults.twin import TwinName
from vit_config import ViTConfig
from vit_torch.leaves import walk
from vit_torch.mlp import ACTIVATIONS
from vit_torch.model import ViT
from vit_torch.weights import abstract_model


class TorchOperations:
    """See `parity.faults.twin.Twin`."""

    name: TwinName = "torch"
    xp = torch
    call = "forward"
    model = ViT

    @property
    def activations(self) -> Mapping[str, Callable[[Any], Any]]:
        """See `Twin`."""
        return ACTIVATIONS

    def abstract_model(self, cfg: ViTConfig) -> ViT:
        """Build a model's tree without values."""
        return abstract_model(cfg)

    def modules(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Yield every module with its dotted path; the model itself has an empty one."""
        return walk(model)

    def weight(self, module: Any) -> torch.Tensor:
        """Return the weight of a linear layer, a convolution or a norm, in PyTorch's layout."""
        return module.weight

    def bias(self, module: Any) -> torch.Tensor | None:
        """Return the bias of such a layer, or None."""
        return module.bias

    def epsilon(self, norm: Any) -> float:
        """Return the epsilon of a norm."""
        return norm.eps

    def cast(self, x: torch.Tensor, dtype: str) -> torch.Tensor:
        """Cast an array to another type, such as ``float32``."""
        return x.to(getattr(torch, dtype))

    def widened(self, x: torch.Tensor) -> torch.Tensor:
        """Cast an array to at least float32."""
        return x.to(torch.promote_types(x.dtype, torch.float32))

    def detached(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same values, cut off from the gradient."""
        return x.detach()
