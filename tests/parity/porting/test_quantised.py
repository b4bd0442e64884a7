"""Weights in eight bits with their scales are multiplied out, as the libraries that wrote them do."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import WeightsError

GIVEN = {"num_heads": 5, "image_size": (21, 15), "norm_eps": 1e-6, "act": "gelu", "pool": "class",
         "block": "pre_norm"}  # fmt: skip
FLOAT8 = ml_dtypes.float8_e4m3fn


def int8(weight):
    """bitsandbytes: rows by their largest absolute value, over 127."""
    scale = np.abs(weight).max(1).astype(np.float32)
    return {"weight": np.round(weight * (127 / scale)[:, None]).astype(np.int8), "SCB": scale,
            "weight_format": np.zeros((), np.uint8)}  # fmt: skip


def float8(name, shape, *, dtype=FLOAT8):
    def make(weight):
        scale = np.full(shape(weight), np.abs(weight).max() / 400, np.float32)
        scale += np.arange(scale.size, dtype=np.float32).reshape(scale.shape) * 1e-4
        factor = scale.reshape(-1, 1) if scale.ndim == 1 else scale
        if name == "weight_scale_inv":
            factor = scale.repeat(128, 0)[: len(weight)].repeat(128, 1)[:, : weight.shape[1]]
        return {"weight": (weight / factor).astype(dtype), name: scale}

    return make


SCHEMES = {
    "int8": int8,
    "a number": float8("weight_scale", lambda w: (1,)),
    "rows": float8("weight_scale", lambda w: (len(w), 1)),
    "comfy": float8("scale_weight", lambda w: (), dtype=ml_dtypes.float8_e5m2),
    "blocks": float8("weight_scale_inv", lambda w: (-(-len(w) // 128), -(-w.shape[1] // 128))),
}


def written(path, make):
    """A model of timm's names whose MLPs are in eight bits; the numbers that they stand for."""
    cfg = TINY.replace(mlp_dim=150)
    arrays, meant = arrays_of(cfg), {}
    tensors = {}
    for name, array in arrays.items():
        if ".mlp.fc" not in name or array.ndim != 2:
            tensors[name] = array
            continue
        parts = make(array)
        tensors |= {f"{name.removesuffix('weight')}{part}": each for part, each in parts.items()}
        factor = (
            parts["SCB"] / 127 if "SCB" in parts else next(v for k, v in parts.items() if "scale" in k)
        )
        if factor.shape in ((2, 1), (1, 2)):  # of blocks
            factor = factor.repeat(128, 0)[: len(array)].repeat(128, 1)[:, : array.shape[1]]
        elif factor.ndim == 1:
            factor = factor[:, None]
        meant[name] = parts["weight"].astype(np.float32) * factor
    save_file({n: np.asarray(a) for n, a in tensors.items()}, path, metadata={"format": "pt"})
    return meant


@pytest.mark.parametrize("scheme", SCHEMES)
def test_matrices_are_multiplied_out(scheme, tmp_path):
    meant = written(tmp_path / "a.safetensors", SCHEMES[scheme])
    source = read_checkpoint(tmp_path / "a.safetensors", given=GIVEN)
    convert(source, to="timm", out=tmp_path / "out.safetensors")
    again = read_checkpoint(tmp_path / "out.safetensors")
    for name, array in meant.items():
        np.testing.assert_allclose(again.arrays[name].load(), array, rtol=3e-7)
    assert any("6 matrices of" in each and "multiplied out" in each for each in again.hops[-1].done)


def test_a_scale_of_another_shape_is_refused(tmp_path):
    arrays = arrays_of(TINY)
    name = "blocks.0.mlp.fc1."
    arrays |= {
        f"{name}weight": arrays[f"{name}weight"].astype(np.int8),
        f"{name}SCB": np.ones(7, np.float32),
    }
    save_file(arrays, tmp_path / "a.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"of shape \(44, 30\) in int8, its scale of \(7,\)"):
        read_checkpoint(tmp_path / "a.safetensors", given=GIVEN)
