"""One vocabulary for the operations of both frameworks, and which of them only move elements."""

from __future__ import annotations

JAX_NAMES = {
    "dot_general": "matmul", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min",
    "reduce_prod": "prod", "max": "maximum", "min": "minimum", "integer_pow": "pow", "select_n": "where",
    "broadcast_in_dim": "broadcast", "concatenate": "concat", "conv_general_dilated": "conv",
    "convert_element_type": "convert", "logistic": "sigmoid", "add_any": "add", "clamp": "clip",
    "rem": "remainder", "rev": "flip", "expand_dims": "unsqueeze", "iota": "arange",
    "dynamic_slice": "slice",
}  # fmt: skip
"""Name here of each primitive whose own name differs."""

TORCH_NAMES = {
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "amax": "max", "amin": "min",
    "convolution": "conv", "_to_copy": "convert", "cat": "concat", "permute": "transpose", "t":
    "transpose",
    "view": "reshape", "_unsafe_view": "reshape", "_reshape_alias": "reshape", "expand": "broadcast",
    "to": "convert", "collapse_view": "reshape", "split_dim": "reshape",
    "broadcast_in_dim": "broadcast",
    "sub": "sub", "rsub": "rsub", "select": "slice", "alias": "copy", "clone": "copy",
    "_softmax": "softmax", "_log_softmax": "log_softmax", "clamp": "clip", "clamp_min": "maximum",
    "clamp_max": "minimum", "div": "div", "true_divide": "div", "native_layer_norm": "layer_norm",
    "index": "gather", "embedding": "gather", "constant_pad_nd": "pad", "bitwise_not": "not",
    "logical_not": "not", "bitwise_and": "and", "logical_and": "and", "bitwise_or": "or", "logical_or":
    "or", "scalar_tensor": "full", "fmod": "remainder", "unsqueeze": "unsqueeze", "_conj": "conj",
    "_softmax_backward_data": "softmax_backward", "eq": "eq", "convert_element_type": "convert",
    "_fft_r2c": "fft", "_fft_c2r": "fft", "_fft_c2c": "fft",
    "device_put": "copy", "lift_fresh": "copy", "lift_fresh_copy": "copy",
}  # fmt: skip
"""Name here of each aten operator, without its overload, whose own name differs."""

LAYOUT = frozenset(
    {
        "transpose", "reshape", "squeeze", "unsqueeze", "broadcast", "flip", "copy", "stop_gradient",
        "contiguous", "reduce_precision", "_neg_view", "detach",
    }
)  # fmt: skip
"""Operations that move or repeat the elements of their operand: the fingerprint stays."""

ELEMENTWISE = frozenset(
    {
        "add", "sub", "rsub", "mul", "div", "neg", "pow", "exp",
        "exp2", "log", "log1p", "expm1", "tanh", "erf", "erfc", "sqrt",
        "rsqrt", "abs", "sign", "sigmoid", "sin", "cos", "maximum", "minimum",
        "where", "clip", "square", "reciprocal", "convert", "relu",
    }
)  # fmt: skip
"""Operations that keep the order of the elements."""
