"""Suffixes of the files that hold models: weights, indices of their shards, exported programs."""

from __future__ import annotations

WEIGHTS = (
    ".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".npz", ".msgpack", ".h5", ".keras", ".eqx",
    ".tar.lz4", ".gguf",
)  # fmt: skip
"""Suffixes of weights files that can be read."""
NAMED = (*WEIGHTS, ".pth.tar", ".th", ".pkl")
"""Those, and suffixes that files of other content have as well: such a file must be named, or be found
by a scan, which opens it to see."""
INDICES = (".safetensors.index.json", ".bin.index.json")
"""Suffixes of indices that say in which file each tensor is."""
PROGRAMS = {"onnx": ".onnx", "stablehlo": ".stablehlo", "torch-export": ".pt2"}
"""Suffix of the programs that `parity export` writes, by format."""
