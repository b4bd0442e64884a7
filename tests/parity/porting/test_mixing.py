"""Mixup and cutmix are timm's and Big Vision's, from the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.porting.reading.libraries.peers import import_timm
from vit_config import Mix
from vit_train.augmentation.mixing import mix_batch

STREAM = np.random.default_rng(0)
IMAGES = STREAM.standard_normal((6, 21, 15, 3)).astype(np.float32)
LABELS = np.array([3, 0, 4, 4, 1, 2])
CASES = {
    "deit": {"mixup": 0.8, "cutmix": 1.0},
    "mixup": {"mixup": 0.2},
    "cutmix": {"cutmix": 1.0},
    "sometimes": {"mixup": 0.8, "cutmix": 1.0, "probability": 0.5, "cutmix_share": 0.8},
}


def _draw_from(monkeypatch, seed):
    """numpy's global functions, from a generator like ours."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(np.random, "rand", lambda *size: rng.random(*size))
    monkeypatch.setattr(np.random, "beta", lambda a, b, size=None: rng.beta(a, b, size))
    monkeypatch.setattr(np.random, "randint", lambda low, high, size=None: rng.integers(low, high))


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_mixed_as_timm_does(case, mode, monkeypatch):
    """Pixels bit for bit; timm's labels are float32 products in another order. Smoothing before mixing,
    as there, or after it, as our loss does, is the same."""
    import_timm()
    from timm.data import Mixup

    for seed in range(8):
        actual, shares = mix_batch(
            IMAGES, LABELS, Mix(**CASES[case], mode=mode), 5, np.random.default_rng(seed)
        )
        with monkeypatch.context() as patch:
            _draw_from(patch, seed)
            peer = Mixup(
                mixup_alpha=CASES[case].get("mixup", 0.0),
                cutmix_alpha=CASES[case].get("cutmix", 0.0),
                prob=CASES[case].get("probability", 1.0),
                switch_prob=CASES[case].get("cutmix_share", 0.5),
                mode=mode,
                label_smoothing=0.1,
                num_classes=5,
            )
            images = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())
            images, target = peer(images, torch.from_numpy(LABELS))
        np.testing.assert_array_equal(actual, images.numpy().transpose(0, 2, 3, 1))
        assert np.abs(shares * 0.9 + 0.1 / 5 - target.numpy()).max() < 2e-7


@pytest.mark.parametrize("alpha", [0.2, 0.5])
def test_a_batch_is_mixed_as_big_vision_does(alpha):
    """`get_mixup` of big_vision/utils.py, told the share; rounding apart, as XLA fuses."""

    class FixedShare:
        def __init__(self, share):
            self.share = share

        def beta(self, a, b):
            assert (a, b) == (alpha, alpha)
            return self.share

    for drawn in (0.1, 0.5, 0.93):
        actual = mix_batch(IMAGES, LABELS, Mix(mixup=alpha, style="big_vision"), 5, FixedShare(drawn))  # pyright: ignore
        a = jnp.maximum(jnp.float32(drawn), 1.0 - jnp.float32(drawn))
        things = (jnp.asarray(IMAGES), jax.nn.one_hot(LABELS, 5))
        expected = [a * thing + (1 - a) * jnp.roll(thing, shift=1, axis=0) for thing in things]
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-7)


def test_the_batch_that_comes_in_is_left_alone():
    before = IMAGES.copy()
    for mode in ("batch", "pair", "elem"):
        mix_batch(IMAGES, LABELS, Mix(mixup=0.8, cutmix=1.0, mode=mode), 5, np.random.default_rng(1))
    np.testing.assert_array_equal(IMAGES, before)
