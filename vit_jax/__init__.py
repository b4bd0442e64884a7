"""The Vision Transformer in Flax; the twin of `vit_torch`, file by file and word for word."""

from vit_jax.block import Block
from vit_jax.heads import set_kernel
from vit_jax.leaves import count_parameters
from vit_jax.model import ViT
from vit_jax.text import TextTower
from vit_jax.weights import from_arrays, text_from_arrays, to_arrays

__all__ = ["ViT", "from_arrays", "set_kernel", "to_arrays"]
