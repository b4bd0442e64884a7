"""One small ViT of PyTorch, whose process may be given other kernels or settings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

HEADS, WIDTH = 3, 48
KERNELS: list[Any] = []
"""Libraries of kernels, which hold as long as they are referred to."""


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute (B, N, D) from (B, N, D)."""
        B, N, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, N, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (D // HEADS) ** -0.5).softmax(-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(B, N, D))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class Small(nn.Module):
    """Patches, two blocks, the mean, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute logits (B, 5) of images (B, 3, H, W)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def plain() -> tuple[Any, np.ndarray]:
    """The model with its initial weights, and random images."""
    torch.manual_seed(0)
    return Small(), np.random.default_rng(0).normal(size=(2, 3, 32, 40)).astype(np.float32)


def half() -> Any:
    """In float16."""
    model, images = plain()
    return model.half(), images.astype(np.float16)


def bfloat16() -> Any:
    """In bfloat16."""
    model, images = plain()
    return model.bfloat16(), torch.from_numpy(images).bfloat16()


def tiny() -> Any:
    """Patches whose numbers are below float32's smallest normal one."""
    model, images = plain()
    with torch.no_grad():
        model.patches.weight.mul_(1e-39)
        nn.init.zeros_(model.patches.bias)
    return model, images


def flushed() -> Any:
    """As `tiny`, where such numbers are flushed to zero."""
    torch.set_flush_denormal(True)
    return tiny()


def without_onednn() -> Any:
    """By PyTorch's own kernels."""
    torch.backends.mkldnn.enabled = False
    return plain()


def compiled() -> Any:
    """As torch.compile traces it, run without a compiler."""
    model, images = plain()
    return torch.compile(model, backend="eager"), images


def in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """Round to bfloat16."""
    return x.bfloat16().to(x.dtype)


def in_tf32(x: torch.Tensor) -> torch.Tensor:
    """Round to ten bits behind the leading one."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def _planted(name: str, kernel: Callable[..., Any]) -> Any:
    """Return a function that registers a kernel for CPUs and makes the model."""

    def made() -> Any:
        ready = plain()
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings(action="ignore"):  # it says that another kernel was there
            library.impl(name, kernel, "CPU")
        KERNELS.append(library)
        return ready

    return made


def _addmm_of(rounded: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def addmm(bias: Any, x: Any, w: Any, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
        return torch.from_numpy(rounded(x.detach()).numpy() @ rounded(w.detach()).numpy()) + bias

    return addmm


def _sums_of(rounded: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def addmm(bias: Any, x: Any, w: Any, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
        total = torch.zeros(x.shape[0], w.shape[1])
        for k in reversed(range(x.shape[1])):
            total = rounded(total + x[:, k : k + 1] * w[k : k + 1])
        return total + bias

    return addmm


def _gelu(x: Any, *, approximate: str = "none") -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _softmax_bfloat16(x: Any, axis: int, half_to_float: bool) -> torch.Tensor:
    powers = (x - x.amax(axis, keepdim=True)).exp()
    return in_bfloat16(powers / powers.sum(axis, keepdim=True))


def _softmax_fast(x: Any, axis: int, half_to_float: bool) -> torch.Tensor:
    """Schraudolph's exponential: the bits of a line."""
    line = ((x - x.amax(axis, keepdim=True)) * 12102203.2 + 1064986816).to(torch.int32)
    powers = line.view(torch.float32)
    return powers / powers.sum(axis, keepdim=True)


def _norm_of(statistics: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        seen = statistics(x)
        mean = seen.mean(-1, keepdim=True)
        inverse = ((seen - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        return ((x - mean) * inverse * weight + bias).contiguous(), mean, inverse

    return norm


def _norm_other_eps(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _norm_of(lambda seen: seen)(x, shape, weight, bias, 1e-3)


def _conv_bfloat16(x: Any, w: Any, bias: Any, padding: Any, stride: Any, *rest: Any) -> torch.Tensor:
    kernel = w.shape[-2:]
    columns = nn.functional.unfold(in_bfloat16(x), kernel, stride=stride)  # (B, C p q, N)
    made = in_bfloat16(w).flatten(1) @ columns + bias[:, None]
    return made.unflatten(2, [x.shape[-2] // kernel[0], x.shape[-1] // kernel[1]]).contiguous()


def _half(x: torch.Tensor) -> np.ndarray:
    return x.detach().numpy().astype(np.float16)


def _add_half(x: Any, y: Any, *, alpha: Any = 1) -> torch.Tensor:
    return torch.from_numpy((_half(x) + np.float16(alpha) * _half(y)).astype(np.float32))


def _matmul_half(x: Any, y: Any) -> torch.Tensor:
    return torch.from_numpy(np.einsum("bij,bjk->bik", _half(x), _half(y)).astype(np.float32))


products_bfloat16 = _planted("addmm", _addmm_of(in_bfloat16))
products_tf32 = _planted("addmm", _addmm_of(in_tf32))
products_reordered = _planted("addmm", _sums_of(lambda x: x))
sums_bfloat16 = _planted("addmm", _sums_of(in_bfloat16))
gelu_tanh = _planted("gelu", _gelu)
softmax_bfloat16 = _planted("_softmax", _softmax_bfloat16)
softmax_fast = _planted("_softmax", _softmax_fast)
norm_bfloat16 = _planted("native_layer_norm", _norm_of(in_bfloat16))
norm_epsilon = _planted("native_layer_norm", _norm_other_eps)
conv_bfloat16 = _planted("mkldnn_convolution", _conv_bfloat16)
add_float16 = _planted("add.Tensor", _add_half)
attention_float16 = _planted("bmm", _matmul_half)
