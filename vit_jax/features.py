"""timm's methods of a Vision Transformer: features, intermediate features, and another head."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError, ViTConfig
from vit_config.features import check_format, taken_blocks, with_head
from vit_config.images.patches import Patches
from vit_config.pretrained import About
from vit_jax.drop import Dropout
from vit_jax.init import draw_anew
from vit_jax.leaves import leaves
from vit_jax.pooling import make_pool


class Features:
    """timm's methods of a Vision Transformer, as a mixin of the model; each has timm's meaning."""

    cfg: ViTConfig
    about: About
    run_blocks: Callable[..., Iterator[tuple[jax.Array, Any, Any]]]
    normalise: Callable[[jax.Array], jax.Array]
    pool_tokens: Callable[..., jax.Array]
    valid_tokens: Callable[..., jax.Array]
    classify: Callable[..., jax.Array]
    combine: Callable[[jax.Array], jax.Array]
    add_head: Callable[..., None]
    head_drop: Dropout
    pre_logits: nnx.Module | None
    head: nnx.Module | None
    head_dist: nnx.Module | None

    def forward_features(
        self, images: jax.Array | Patches, *, rngs: nnx.Rngs | None = None
    ) -> jax.Array:
        """Return all tokens (B, P + N, D) after the last block, and after a final norm before pooling.

        Args:
            images: (B, H, W, C), normalised, or patches.

        Raises:
            InputError: an image the model was not built for.
        """
        return self.forward_intermediates(images, 1, output_fmt="NLC", rngs=rngs)[0]

    def forward_head(
        self,
        x: jax.Array,
        pre_logits: bool = False,
        valid: jax.Array | None = None,
        *,
        rngs: nnx.Rngs | None = None,
    ) -> jax.Array:
        """Compute the logits (B, num_classes) from the tokens that `forward_features` returns.

        Args:
            x: (B, P + N, D).
            pre_logits: return the head's input instead; with a distillation token, the mean of both
                heads' inputs.
            valid: (B, N), the patches that are no padding; None is all.

        Raises:
            InputError: an array of another shape, or tokens whose grid is not known.
        """
        D = self.cfg.hidden_size
        if x.ndim != 3 or x.shape[-1] != D:
            raise InputError(f"tokens have shape {x.shape}, expected (B, P + N, {D})")
        if self.cfg.pool == "soft" and (valid is not None or x.shape[1] != self.cfg.num_patches):
            raise InputError(
                f'pool = "soft" takes {self.cfg.num_patches} tokens of the grid {self.cfg.grid} here,'
                f" not {x.shape[1]} of an unknown one; call the model on images"
            )
        pooled = self.pool_tokens(x, None if valid is None else self.valid_tokens(valid))
        if not pre_logits:
            return self.combine(self.classify(x, pooled, rngs=rngs))
        if self.pre_logits is not None:
            pooled = jnp.tanh(self.pre_logits(pooled))  # (B, head_hidden)
        return self.head_drop(pooled, rngs=rngs)

    def forward_intermediates(
        self,
        images: jax.Array | Patches,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NHWC",
        intermediates_only: bool = False,
        *,
        rngs: nnx.Rngs | None = None,
    ) -> Any:
        """Return the outputs of blocks, beside the features that `forward_features` returns.

        Args:
            images: (B, H, W, C), normalised, or patches.
            indices: how many of the last blocks, or the numbers of blocks, negative from the end;
                None is all.
            return_prefix_tokens: give each output as a pair with its prefix tokens (B, P, D), if any.
            norm: apply the final norm to each output, if it stands before pooling.
            stop_early: run no block after the last one asked for; the features are then that block's.
            output_fmt: ``NHWC`` for maps (B, H / ph, W / pw, D), or ``NLC`` for patch tokens (B, N, D).
            intermediates_only: leave out the features.

        Returns:
            (features, outputs) in the order of the blocks, or the outputs alone.

        Raises:
            InputError: blocks that the model does not have, another format, or maps while patches are
                dropped.
        """
        cfg = self.cfg
        taken = taken_blocks(cfg.depth, indices)
        maps = check_format(output_fmt, ("NHWC", "NLC"))
        if maps and isinstance(images, Patches):
            raise InputError(
                f'output_fmt = "{output_fmt}" needs images of one grid, but these are patches of any;'
                ' use output_fmt = "NLC"'
            )
        x, tokens = images, []
        for index, (x, _, _) in enumerate(self.run_blocks(images, rngs=rngs)):
            if index in taken:
                tokens.append(self.normalise(x) if norm else x)
            if stop_early and index == max(taken):
                break
        assert not isinstance(x, Patches)  # there is at least one block
        P = cfg.num_prefix_tokens
        prefix, outputs = [each[:, :P] for each in tokens], [each[:, P:] for each in tokens]
        if maps and not isinstance(images, Patches):
            grid = cfg.grid_of(*images.shape[1:3])
            outputs = [to_map(each, grid) for each in outputs]
        if return_prefix_tokens and P:
            outputs = list(zip(outputs, prefix, strict=True))
        return outputs if intermediates_only else (self.normalise(x), outputs)

    def get_intermediate_layers(
        self,
        images: jax.Array | Patches,
        n: int | Sequence[int] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        *,
        rngs: nnx.Rngs | None = None,
    ) -> list[Any]:
        """Return the outputs of the last `n` blocks, or of the blocks numbered `n`, as in DINO's code.

        Args:
            reshape: return maps, not patch tokens; the other arguments are those of
                `forward_intermediates`.
        """
        return self.forward_intermediates(
            images,
            n,
            return_prefix_tokens,
            norm,
            output_fmt="NHWC" if reshape else "NLC",
            intermediates_only=True,
            rngs=rngs,
        )

    def reset_classifier(
        self, num_classes: int, global_pool: str | None = None, *, rngs: nnx.Rngs
    ) -> None:
        """Replace the head by one drawn by the schema's recipe, and change the pooling; the rest stays.

        Args:
            num_classes: 0 removes the head.
            global_pool: ``token``, ``avg``, or ``map`` where the model has it; None keeps the
                pooling. As in timm, norms stay where they are.
            rngs: a stream ``params``.

        Raises:
            InputError: a pooling that the model cannot have, or `rngs` are none.
            ConfigError: the schema contradicts it, as a distillation token does ``avg``.
        """
        if not isinstance(rngs, nnx.Rngs):
            raise InputError(f"rngs = {rngs!r}: expected nnx.Rngs(SEED)")
        self.cfg = cfg = with_head(self.cfg, num_classes, global_pool)
        self.about = self.about.with_another_head()
        if cfg.pool != "map":
            self.attn_pool = None
        self.pool = make_pool(cfg)
        dtype = next(iter(leaves(self))).variable.get_value().dtype  # type: ignore[arg-type]
        self.add_head(cfg, rngs=rngs)
        new = [leaf for leaf in leaves(self) if leaf.name.startswith("head")]  # type: ignore[arg-type]
        for leaf in new:
            leaf.variable.set_value(leaf.variable.get_value().astype(dtype))
        draw_anew(cfg, new, rngs=rngs)


def to_map(x: jax.Array, grid: tuple[int, int]) -> jax.Array:
    """Reshape patch tokens (B, N, D) to a map (B, H / ph, W / pw, D).

    Raises:
        InputError: patches are missing.
    """
    B, N, D = x.shape
    if grid[0] * grid[1] != N:
        raise InputError(
            f'output_fmt = "NHWC" needs all patches, but dropout_patch left {N} of {grid[0] * grid[1]};'
            ' use output_fmt = "NLC", or do not drop'
        )
    return x.reshape(B, *grid, D)
