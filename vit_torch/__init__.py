"""The Vision Transformer in PyTorch; the twin of `vit_jax`, file by file and word for word."""

from vit_torch.block import Block
from vit_torch.heads import set_kernel
from vit_torch.leaves import count_parameters
from vit_torch.model import ViT
from vit_torch.text import TextTower
from vit_torch.weights import from_arrays, text_from_arrays, to_arrays

__all__ = ["ViT", "from_arrays", "set_kernel", "to_arrays"]
