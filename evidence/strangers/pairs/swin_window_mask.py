"""swin with the mask from labels."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np
from einops import rearrange

from draw import to_jax
from swin import GH, GW, SHIFT, WH, WW, stage, tokens, weights


def mask():
    label = np.zeros((GH, GW), int)
    label[-SHIFT[0]:] += 1
    label = np.roll(label, SHIFT, (0, 1))  # !wrong
    label[:, -SHIFT[1]:] += 2
    windows = rearrange(label, "(i y) (j x) -> (i j) (y x)", y=WH, x=WW)
    return -100.0 * (windows[:, None] != windows[:, :, None])


def side_wrong():
    return (lambda p, x: stage(p, x, mask=mask)), (to_jax(weights()), to_jax(tokens()))
