"""Mistakes in the parts that some Vision Transformers have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from parity.faults.registry import fault


@fault(
    "PyTorch: the class token and registers rotated along with the patches",
    "blocks.0.attn",
    rope=bool,
    num_prefix_tokens=bool,
)
def _rotated_prefix() -> Iterator[None]:
    import torch

    from vit_torch import attention

    rotate = attention.rotate

    def wrong(x: Any, rotation: Any, *, pairs: str) -> Any:
        extra = x.shape[1] - rotation.sin.shape[1]
        wider = (torch.cat([part[:, :extra], part], dim=1) for part in rotation)
        return rotate(x, type(rotation)(*wider), pairs=pairs)

    with mock.patch.object(attention, "rotate", wrong):
        yield


@fault(
    "PyTorch: heads of keys and values repeated as a whole, not each for its neighbours",
    "blocks.0.attn",
    num_kv_heads=bool,
)
def _tiled_kv_heads() -> Iterator[None]:
    import torch

    def wrong(x: Any, repeats: int, dim: int) -> Any:
        return torch.cat([x] * repeats, dim=dim)

    with mock.patch.object(torch.Tensor, "repeat_interleave", wrong):
        yield


@fault("PyTorch: gate and value of a packed SwiGLU swapped", "blocks.0.mlp", mlp="swiglu_packed")
def _swapped_gate() -> Iterator[None]:
    from vit_torch.mlp import PackedSwiGLU

    def wrong(self: Any, x: Any) -> Any:
        value, gate = self.fc1(x).chunk(2, dim=-1)
        return self.act(gate) * value

    with mock.patch.object(PackedSwiGLU, "hidden", wrong):
        yield


@fault(
    "PyTorch: relative positions read from key to query", "blocks.0.attn.rel_pos_bias", rel_pos_bias=True
)
def _transposed_relative_positions() -> Iterator[None]:
    from vit_torch.rel_pos import RelativePositionBias

    forward = RelativePositionBias.forward
    with mock.patch.object(
        RelativePositionBias, "forward", lambda self: forward(self).transpose(-1, -2)
    ):
        yield


@fault(
    "PyTorch: attention pooling sees the class token and registers",
    "attn_pool",
    pool="map",
    pool_prefix=False,
    num_prefix_tokens=bool,
)
def _pooled_prefix() -> Iterator[None]:
    from vit_torch.pooling import AttentionPool

    init = AttentionPool.__init__

    def wrong(self: Any, cfg: Any) -> None:
        init(self, cfg)
        self.first_pooled = 0

    with mock.patch.object(AttentionPool, "__init__", wrong):
        yield


@fault(
    "PyTorch: the lambda of differential attention counts blocks from one",
    "blocks.0.attn",
    attention="differential",
)
def _lambda_of_the_next_block() -> Iterator[None]:
    from vit_torch.heads import DifferentialHeads

    add_lambda = DifferentialHeads.add_lambda

    def wrong(self: Any, cfg: Any, index: int) -> None:
        add_lambda(self, cfg, index + 1)

    with mock.patch.object(DifferentialHeads, "add_lambda", wrong):
        yield


@fault("PyTorch: the logits are the class head's alone", "head_logits", distill_token=True)
def _ignored_distillation_head() -> Iterator[None]:
    from vit_torch.model import ViT

    classify = ViT.classify
    with mock.patch.object(ViT, "classify", lambda self, *args: classify(self, *args)[:1]):
        yield
