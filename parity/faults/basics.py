"""Mistakes in the parts that every Vision Transformer has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from parity.faults.registry import fault


@fault("PyTorch: tanh GELU where exact is asked", "blocks.0.mlp.act", act="gelu")
def _tanh_gelu() -> Iterator[None]:
    from vit_torch.mlp import ACTIVATIONS

    with mock.patch.dict(ACTIVATIONS, gelu=ACTIVATIONS["gelu_tanh"]):
        yield


@fault("JAX: tanh GELU, in the float32 path only", "blocks.0.mlp.act", act="gelu")
def _tanh_gelu_in_float32() -> Iterator[None]:
    from vit_jax.mlp import ACTIVATIONS

    exact, tanh = ACTIVATIONS["gelu"], ACTIVATIONS["gelu_tanh"]
    with mock.patch.dict(ACTIVATIONS, gelu=lambda x: (tanh if x.dtype == "float32" else exact)(x)):
        yield


@fault("PyTorch: LayerNorm epsilon ten times too large", "blocks.0.norm1", norm="layernorm")
def _norm_epsilon() -> Iterator[None]:
    from torch import nn

    init = nn.LayerNorm.__init__

    def wrong(self: Any, size: int, eps: float = 1e-5, **options: Any) -> None:
        init(self, size, eps=10 * eps, **options)

    with mock.patch.object(nn.LayerNorm, "__init__", wrong):
        yield


@fault(
    "JAX: the one-pass variance E[x^2] - E[x]^2 (needs --token-offset 1000 to be seen)",
    "blocks.0.norm1",
    norm="layernorm",
)
def _fast_variance() -> Iterator[None]:
    from flax import nnx

    init = nnx.LayerNorm.__init__

    def wrong(self: Any, size: int, **options: Any) -> None:
        init(self, size, **{**options, "use_fast_variance": True})

    with mock.patch.object(nnx.LayerNorm, "__init__", wrong):
        yield


@fault("PyTorch: queries and keys swapped", "blocks.0.attn")
def _swapped_q_and_k() -> Iterator[None]:
    from vit_torch import heads

    attend = heads.attend
    with mock.patch.object(heads, "attend", lambda q, k, v, **options: attend(k, q, v, **options)):
        yield


@fault("PyTorch: heads joined in reverse order", "blocks.0.attn")
def _permuted_heads() -> Iterator[None]:
    from vit_torch import heads

    attend = heads.attend

    def wrong(q: Any, k: Any, v: Any, **options: Any) -> Any:
        y, weights = attend(q, k, v, **options)  # (B, N, h, d)
        return y.flip(2), weights

    with mock.patch.object(heads, "attend", wrong):
        yield


@fault("PyTorch: attention scaled by the whole width instead of one head's", "blocks.0.attn")
def _attention_scale() -> Iterator[None]:
    from vit_torch import heads

    attend = heads.attend

    def wrong(q: Any, k: Any, v: Any, **options: Any) -> Any:
        return attend(q * q.shape[2] ** -0.5, k, v, **options)  # (B, N, h, d): h times too wide

    with mock.patch.object(heads, "attend", wrong):
        yield


@fault(
    "JAX: square projections loaded without the transposition",
    "blocks.0.attn.proj",
    attention_out_proj=True,
    attention_head_dim=None,
)
def _transposed_projection() -> Iterator[None]:
    from vit_jax.leaves import Leaf

    from_common = Leaf.from_common

    def wrong(self: Any, array: Any) -> Any:
        square = array.ndim == 2 and array.shape[0] == array.shape[1]
        return array if square else from_common(self, array)

    with mock.patch.object(Leaf, "from_common", wrong):
        yield


@fault("PyTorch: the residual around attention dropped", "blocks.0")
def _dropped_residual() -> Iterator[None]:
    from vit_torch.block import Block

    def wrong(self: Any, x: Any, **options: Any) -> Any:
        x, weights = self.attn(self.norm1(x), **options)
        x = self.drop_path1(self.ls1(x))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x)))), weights

    with mock.patch.object(Block, "forward", wrong):
        yield


@fault("PyTorch: the class token behind the patches", "")
def _class_token_last() -> Iterator[None]:
    from vit_torch.model import ViT

    add_positions = ViT.add_positions

    def wrong(self: Any, *args: Any) -> Any:
        return add_positions(self, *args).roll(-1, dims=1)

    with mock.patch.object(ViT, "add_positions", wrong):
        yield


@fault("PyTorch: positions shifted by one token", "", pos_embed=lambda kind: kind != "none")
def _shifted_positions() -> Iterator[None]:
    from vit_torch.model import ViT

    position_table: Any = ViT.position_table
    with mock.patch.object(ViT, "position_table", lambda *args: position_table(*args).roll(1, dims=1)):
        yield


@fault("PyTorch: no final norm", "norm", final_norm="pre_pool")
def _missing_final_norm() -> Iterator[None]:
    from vit_torch.model import ViT

    forward = ViT.forward

    def wrong(self: Any, images: Any, **options: Any) -> Any:
        norm, self.norm = self.norm, None
        try:
            return forward(self, images, **options)
        finally:
            self.norm = norm

    with mock.patch.object(ViT, "forward", wrong):
        yield


@fault("PyTorch: the mean of all tokens pooled instead of what the schema says", "pool")
def _wrong_pool() -> Iterator[None]:
    from vit_torch.pooling import Pool

    with mock.patch.object(Pool, "forward", lambda self, x: x.mean(dim=1)):
        yield


@fault(
    "PyTorch: values of each patch row read from right to left", "patch_embed.proj", patch_embed="conv"
)
def _patch_order() -> Iterator[None]:
    from torch import nn

    convolve = nn.Conv2d._conv_forward

    def wrong(self: Any, x: Any, weight: Any, bias: Any) -> Any:
        return convolve(self, x, weight.flip(-1), bias)

    with mock.patch.object(nn.Conv2d, "_conv_forward", wrong):
        yield


@fault("PyTorch: the bias of the second MLP layer unused", "blocks.0.mlp.fc2", mlp_bias=True)
def _unused_bias() -> Iterator[None]:
    from vit_torch.mlp import Mlp

    init = Mlp.__init__

    def wrong(self: Any, cfg: Any) -> None:
        init(self, cfg)
        self.fc2.register_forward_hook(lambda module, args, output: output - module.bias)

    with mock.patch.object(Mlp, "__init__", wrong):
        yield


@fault(
    "PyTorch: layer scales of the two branches swapped",
    "blocks.0.ls1",
    layer_scale=lambda gain: gain is not None,
)
def _swapped_layer_scales() -> Iterator[None]:
    from vit_torch.block import Block

    forward = Block.forward

    def wrong(self: Any, x: Any, **options: Any) -> Any:
        first, second = self.ls1.gamma.detach().clone(), self.ls2.gamma.detach().clone()
        self.ls1.gamma.data, self.ls2.gamma.data = second, first
        try:
            return forward(self, x, **options)
        finally:
            self.ls1.gamma.data, self.ls2.gamma.data = first, second

    with mock.patch.object(Block, "forward", wrong):
        yield


@fault(
    "PyTorch: positions cut off from the gradient; the forward pass is right",
    "pos_embed",
    pos_embed="learned",
)
def _detached_positions() -> Iterator[None]:
    from vit_torch.model import ViT

    position_table: Any = ViT.position_table
    with mock.patch.object(ViT, "position_table", lambda *args: position_table(*args).detach()):
        yield
