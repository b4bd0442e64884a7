"""A program as ONNX Runtime's dynamic quantisation computes it: 8 bits of what goes into a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from parity.exporting.narrow.aten import TorchGraph, operation

_PRODUCTS = ("linear", "conv2d")


class Int8Graph(TorchGraph):
    """An exported float32 program of the PyTorch twin whose products of weights are quantised."""

    def __init__(self, program: Any, images: np.ndarray, sizes: Sequence[int]) -> None:
        """Read a program; `sizes` are those of the batches in which it runs on the images."""
        self._sizes = [*sizes]
        super().__init__(program, "float32", images)
        self.steps = [
            replace(step, exact=not (step.weights and operation(node) in _PRODUCTS))
            for step, node in zip(self.steps, self._nodes, strict=True)
        ]
        self.prepare("int8", len(images))

    def called(self, index: int) -> str:
        """Return the name of a node."""
        return self._nodes[index].name

    def _narrow(self, index: int, known: dict[int, Any], value: Any) -> Any:
        node = self._nodes[index]
        x, weight, *others = (self._value(each, known) for each in node.args)
        with torch.no_grad():
            x = torch.cat([_of_batch(each) for each in x.split(self._sizes)])
            return node.target(x, _of_weights(weight), *others, **node.kwargs)


def _of_batch(x: torch.Tensor) -> torch.Tensor:
    """Round what is multiplied to 256 steps between its least and its largest number, 0 among them."""
    low, high = x.min().clamp(max=0.0), x.max().clamp(min=0.0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    zero = torch.round(-low / scale)
    return (torch.clamp(torch.round(x / scale) + zero, 0, 255) - zero) * scale


def _of_weights(weight: torch.Tensor) -> torch.Tensor:
    """Round weights to integers up to 127, by one factor for each row of a matrix."""
    largest = weight.abs().amax(1, keepdim=True) if weight.ndim == 2 else weight.abs().max()
    scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.round(weight / scale) * scale
