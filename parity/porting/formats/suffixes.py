"""Suffixes of the files that hold models: weights, indices of their shards, exported programs."""

from __future__ import annotations

import re

WEIGHTS = (
    ".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".npz", ".msgpack", ".h5", ".keras", ".eqx",
    ".tar.lz4", ".gguf",
)  # fmt: skip
"""Suffixes of weights files that can be read."""
NAMED = (*WEIGHTS, ".pth.tar", ".th", ".pkl")
"""Those, and suffixes that files of other content have as well: such a file must be named, or be found
by a scan, which opens it to see."""
INDEX = re.compile(r"(?P<stem>.+)(?P<suffix>\.safetensors|\.bin)\.index(?P<variant>\.\w+)?\.json")
"""Names of indices that say in which file each tensor is; a variant such as fp16 stands in the stem, or
behind the word index, where transformers and diffusers write it."""
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})((?:\.\w+)+)")
"""Names of one of several files with a model."""
PROGRAMS = {"onnx": ".onnx", "stablehlo": ".stablehlo", "torch-export": ".pt2"}
"""Suffix of the programs that `parity export` writes, by format."""
