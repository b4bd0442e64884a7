"""The names of all causes, what they mean, and what to do about them."""

from __future__ import annotations

from parity.verifier.diagnose.search import Reproduction
from parity.verifier.diagnose.segment import Segment

CAUSES: dict[str, str] = {
    "activation-kind": "another activation",
    "activation-twice": "the activation applied twice",
    "attention-bias": "the bias of attention logits missing, transposed or added twice",
    "attention-heads": "another number of heads",
    "attention-mask": "tokens that are not attended to",
    "attention-scale": "another factor of the attention logits",
    "branch-scale": "a term of a sum multiplied by another constant",
    "branch-twice": "a term of a sum added twice",
    "channel-order": "RGB taken as BGR",
    "compute-type": "computed in a narrower type than the recording has",
    "detached": "no gradient passes: detach or stop_gradient",
    "dropout-active": "dropout or stochastic depth is active: training mode",
    "embedding-scale": "patch tokens multiplied by a constant",
    "gate-order": "gate and value of a gated MLP swapped",
    "gelu-kind": "exact, tanh or quick GELU",
    "gradient-kind": "the gradient of another activation",
    "gradient-residual": "the gradient of a residual line is missing or added",
    "gradient-scale": "a gradient multiplied by a constant, as of a mean in place of a sum",
    "grouped-heads": "which heads share keys and values",
    "heads-layout": "heads joined in another order of axes",
    "heads-order": "heads joined in another order",
    "image-flip": "images flipped",
    "input-normalisation": "pixels normalised differently, or on one side only",
    "layer-scale": "layer scale missing, applied twice or of another branch",
    "linear-bias": "the bias of a linear layer missing or added twice",
    "matmul-precision": "operands of a product of matrices rounded to a narrower type",
    "missing-activation": "the activation left out",
    "missing-branch": "a branch left out of a sum",
    "missing-gain": "the gain of a norm left out",
    "missing-gate": "a gated MLP without its gate",
    "missing-head": "a head left out of the mean of all heads' logits",
    "missing-linear": "a linear layer left out",
    "missing-norm": "a norm left out, or skipped by what follows it",
    "missing-positions": "no position table added",
    "missing-residual": "a branch without its residual line",
    "norm-axis": "a norm over another axis",
    "norm-bias": "the bias of a norm missing or added twice",
    "norm-centring": "LayerNorm against RMSNorm",
    "norm-epsilon": "another epsilon of a norm",
    "norm-epsilon-place": "epsilon outside the root",
    "norm-gain": "a gain of 1 + w against w",
    "norm-place": "a norm after a branch instead of before it, or the other way round",
    "norm-variance": "the variance by another formula",
    "patch-bias": "the bias of the patch embedding missing or added twice",
    "patch-order": "patches column by column",
    "patch-padding": "pixels beyond the last whole patch",
    "patch-value-order": "the values of a patch in another order",
    "permuted-outputs": "the outputs of a layer in another order",
    "pooling": "another pooling of tokens",
    "pooling-prefix": "attention pooling over other tokens, such as the class token and registers",
    "position-resampling": "a position table fitted to another grid by another rule",
    "positions": "rows of the position table at other tokens",
    "pre-logits": "what is done to the pooled vector",
    "prefix-place": "prefix tokens after the patches",
    "prefix-tokens": "other prefix tokens, or in another order",
    "qkv-order": "queries, keys and values in another order",
    "qkv-packing": "heads and q, k, v interleaved otherwise in their projection",
    "residual-sum": "another sum of the same tensors",
    "rotary-kind": "rotary positions applied to other pairs, tensors or the other way round",
    "rotary-prefix": "prefix tokens turned by rotary positions, or other tokens than the patches",
    "softmax-axis": "softmax over another axis",
    "softmax-type": "attention weights rounded to a narrower type",
    "transposed-weight": "a square matrix transposed",
    "wrong-input": "computed from another tensor",
    "wrong-residual": "a residual line that starts at another tensor",
}
"""Every name of a cause in the forward and backward pass; several at once are joined by `` + ``."""


def advice(
    a: Segment, b: Segment, left: Reproduction, right: Reproduction, aspect: str, slug: str
) -> str:
    """The line to change in the side that departs from the usual; in B, if neither or both do.

    It is how the other side's option is written in the framework of the side to change. What A has and B
    leaves out is put back, even where having it is not the usual.
    """
    left_out = slug.startswith("missing-") and not left.options[aspect].slug.startswith("missing-")
    change_a = left.departures > right.departures and not left_out
    side, segment = ("A", a) if change_a else ("B", b)
    option = (right if change_a else left).options[aspect]
    code = option.jax if segment.framework == "jax" else option.torch
    return f"{side}: {code or option.label}"
