"""Whether two training states are the same but for the order in which sums were taken, in float64."""

import numpy as np

from parity.runs.folder import read_run

CLOSE = 1e-12
"""How near each tensor has to be, as a share of its norm. Measured: 3e-15 after 20 steps."""
KEYS = 1e-11
"""The same of the bias of q, k and v in one. Softmax ignores that of k, so its gradient is rounding
alone, 1e-18, which Adam divides by 1e-8, not by what it is beside other gradients. Measured: 4e-12."""


def assert_same_state(actual, expected):
    """Of arrays by name, such as ``params.blocks.0.attn.qkv.bias``."""
    assert actual.keys() == expected.keys()
    for name, ref in expected.items():
        ours, limit = actual[name], CLOSE
        assert (ours.shape, ours.dtype) == (ref.shape, ref.dtype), name
        if name.endswith("attn.qkv.bias"):
            thirds = [np.split(each, 3) for each in (ours, ref)]
            for part, own in list(zip(*thirds, strict=True))[::2]:
                assert np.linalg.norm(part - own) <= CLOSE * np.linalg.norm(own), name
            limit = KEYS if name.startswith(("params.", "ema.")) else CLOSE
        assert np.linalg.norm(ours - ref) <= limit * np.linalg.norm(ref), name


def assert_same_run(actual, expected):
    """Of the newest checkpoints in the folders of two runs; the step after which they were written."""
    ours, ref = (read_run(folder).state for folder in (actual, expected))
    assert ours.step == ref.step
    assert_same_state(*(named(state) for state in (ours, ref)))
    return ref.step


def named(state):
    """All tensors of a run's state by part and name."""
    return {
        f"{part}.{name}": value
        for part, arrays in state.parts().items()
        for name, value in arrays.items()
    }
