"""google-research/vision_transformer: the ``.npz`` files of the paper, of AugReg, and of its Flax code.

A released file numbers the layers of a block consecutively (LayerNorm_0, MultiHeadDotProductAttention_1,
LayerNorm_2, MlpBlock_3), as Flax did before Linen; a file that today's code saves numbers each kind of
layer separately. Both come without a prefix, under ``params/`` or under ``opt/target/``.
"""

from __future__ import annotations

from collections.abc import Iterator

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.table import Table, dense, flax_attention, flax_norm, row
from vit_config import Preprocess, ViTConfig

PATCH: Table = (
    *row("patch_embed.proj.weight", "embedding/kernel", "p q c o -> o c p q"),
    *row("patch_embed.proj.bias", "embedding/bias"),
    *row("cls_token", "cls"),
)
HEADS: Table = (*dense("pre_logits", "pre_logits"), *dense("head", "head"))
PRE_LINEN, LINEN = (0, 1, 2, 3), (0, 0, 1, 0)
"""Numbers in the names of a block's first norm, attention, second norm and MLP."""
CODE = "vision_transformer/vit_jax"
RESIZES = f"{CODE}/checkpoint.py: interpolate_posembed"
HYBRID = "a hybrid, whose tokens a ResNet makes"


def encoder(theirs: str, numbers: tuple[int, int, int, int], *, stack: str = "") -> Table:
    """Build the rows of the blocks and of the norm after them.

    Args:
        theirs: prefix of a block: a template, or the plain name of a stack.
        numbers: numbers of its first norm, attention, second norm and MLP.
        stack: "L " if each tensor stacks all blocks.
    """
    norm1, attention, norm2, mlp = numbers
    ours, attn = "blocks.{i}", f"{theirs}/MultiHeadDotProductAttention_{attention}"
    return (
        *flax_norm(f"{ours}.norm1", f"{theirs}/LayerNorm_{norm1}", stack=stack),
        *flax_attention(f"{ours}.attn", attn, stack=stack),
        *flax_norm(f"{ours}.norm2", f"{theirs}/LayerNorm_{norm2}", stack=stack),
        *dense(f"{ours}.mlp.fc1", f"{theirs}/MlpBlock_{mlp}/Dense_0", stack=stack),
        *dense(f"{ours}.mlp.fc2", f"{theirs}/MlpBlock_{mlp}/Dense_1", stack=stack),
        *flax_norm("norm", "Transformer/encoder_norm"),
    )


def table(numbers: tuple[int, int, int, int]) -> Table:
    """Build the table of a whole model whose block layers have these numbers."""
    return (
        *PATCH,
        *row("pos_embed", "Transformer/posembed_input/pos_embedding"),
        *encoder("Transformer/encoderblock_{i}", numbers),
        *HEADS,
    )


def pooled_by_token(cfg: ViTConfig) -> Iterator[str]:
    """Yield a reason if class token and pooling disagree: this code pools the token if there is one."""
    if cfg.class_token != (cfg.pool == "class"):
        yield f"its model has a class token if that is pooled, and none if not; here pool = {cfg.pool}"


def _dialect(name: str, title: str, numbers: tuple[int, int, int, int]) -> Dialect:
    return Dialect(
        name=name,
        title=title,
        family="google",
        tables=(table(numbers),),
        marks=(
            "embedding/kernel",
            "Transformer/posembed_input/pos_embedding",
            f"Transformer/encoderblock_0/LayerNorm_{numbers[2]}/scale",
            "!MAPHead_0/probe",
            "!probe",
        ),
        can={
            "act": ("gelu_tanh",),
            "class_token": ANY,
            "head_hidden": ANY,
            "pool": ("class", "mean"),
        },
        limits=pooled_by_token,
        fixed={
            **by_code(f"{CODE}/models_vit.py: nn.gelu, which approximates", act="gelu_tanh"),
            **by_code("flax.linen.LayerNorm: epsilon = 1e-6", norm_eps=1e-6),
            **by_code(f"{CODE}/models_vit.py: classifier = token has a class token", pool="class"),
            **by_code(
                f"{CODE}/checkpoint.py: interpolate_posembed", pos_embed_resize="bilinear_corners"
            ),
        },
        square=f"{RESIZES}: int(np.sqrt(len(posemb_grid)))",
        preprocess=Preprocess(interpolation="bilinear", crop_mode="squash"),
        foreign={"conv_root/*": HYBRID, "block1/*": HYBRID},
        container="npz",
        weights_name="model.npz",
    )


DIALECTS = (
    _dialect("google", "google-research/vision_transformer", PRE_LINEN),
    _dialect("google-linen", "google-research/vision_transformer, saved by its Linen code", LINEN),
)
