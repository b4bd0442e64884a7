"""Attention heads: plain ones, and differential ones that subtract one attention from another."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError, ViTConfig
from vit_jax.drop import Dropout
from vit_jax.kernels import KERNELS, attend
from vit_jax.leaves import walk
from vit_jax.norm import RMSNorm, make_norm


class Heads:
    """Plain attention heads, as a mixin of a module."""

    attn_drop: Dropout
    scale: float | None = None
    """Factor of the products of queries and keys; None is 1 / sqrt(d)."""
    kernel: str = "auto"
    """How attention is computed, one of `vit_jax.kernels.KERNELS`; see `set_kernel`."""

    def qk_dim(self, head_dim: int) -> int:
        """Return the width of one query or key."""
        return head_dim

    def add_qk_norm(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the norms of queries, keys and values."""
        d = self.qk_dim(cfg.head_dim)
        self.q_norm = make_norm(cfg, d, rngs=rngs) if cfg.qk_norm else None
        self.k_norm = make_norm(cfg, d, rngs=rngs) if cfg.qk_norm else None
        self.v_norm = make_norm(cfg, cfg.head_dim, affine=False, rngs=rngs) if cfg.v_norm else None
        self.scale = cfg.attention_scale

    def normalise(self, q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Normalise each query and key, if the schema says so."""
        if self.q_norm is None or self.k_norm is None:
            return q, k
        return self.q_norm(q), self.k_norm(k)

    def mix(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        bias: jax.Array | None,
        rngs: nnx.Rngs | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Mix the values of all tokens; arguments and results are those of `attend`."""
        options = {"scale": self.scale, "kernel": self.kernel, "drop": self.attn_drop, "rngs": rngs}
        return attend(q, k, v, bias=bias, **options)


class DifferentialHeads(Heads):
    """Heads that subtract a second attention, times a learned lambda (arXiv 2410.05258)."""

    def qk_dim(self, head_dim: int) -> int:
        """Return the width of one query or key: each head has two of both."""
        return head_dim // 2

    def add_lambda(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs) -> None:
        """Create the four vectors of lambda and the norm of each head."""
        d = self.qk_dim(cfg.head_dim)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * index)
        self.lambda_q1 = nnx.Param(jnp.zeros((d,)))
        self.lambda_k1 = nnx.Param(jnp.zeros((d,)))
        self.lambda_q2 = nnx.Param(jnp.zeros((d,)))
        self.lambda_k2 = nnx.Param(jnp.zeros((d,)))
        # always this norm and epsilon, whatever the schema's other norms are (arXiv 2410.05258, 2.2)
        self.sub_norm = RMSNorm(cfg.head_dim, epsilon=1e-5, rngs=rngs)

    def difference(self) -> jax.Array:
        """Return lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_init (equation 2), at least float32."""
        wide = jnp.promote_types(self.lambda_q1.dtype, jnp.float32)
        first = jnp.sum(self.lambda_q1[...].astype(wide) * self.lambda_k1[...].astype(wide))
        second = jnp.sum(self.lambda_q2[...].astype(wide) * self.lambda_k2[...].astype(wide))
        return jnp.exp(first) - jnp.exp(second) + self.lambda_init

    def mix(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        bias: jax.Array | None,
        rngs: nnx.Rngs | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Subtract the second attention from the first (equations 1 and 3).

        Args:
            q, k: (B, N, 2 h, d / 2), the two of each head side by side.
            v: (B, N, h, d).

        Returns:
            (B, N, h, d), and the difference of the weights (B, h, N, N), or None from a fast kernel.
        """
        options = {"bias": bias, "scale": self.scale, "kernel": self.kernel, "drop": self.attn_drop}
        options["rngs"] = rngs
        y1, weights1 = attend(q[:, :, ::2], k[:, :, ::2], v, **options)
        y2, weights2 = attend(q[:, :, 1::2], k[:, :, 1::2], v, **options)
        factor = self.difference().astype(v.dtype)
        y = self.sub_norm(y1 - factor * y2) * jnp.asarray(1 - self.lambda_init, v.dtype)
        if weights1 is None or weights2 is None:
            return y, None
        return y, weights1 - factor * weights2


def set_kernel(model: nnx.Module, kernel: str) -> None:
    """Choose how a model computes attention: one of `vit_jax.kernels.KERNELS`.

    The kernel is not part of the schema, and no file stores it.

    Raises:
        InputError: there is no such kernel.
    """
    if kernel not in KERNELS:
        raise InputError(f"kernel = {kernel!r}; the attention kernels here are {', '.join(KERNELS)}")
    for _, module in walk(model):
        if isinstance(module, Heads):
            module.kernel = kernel
