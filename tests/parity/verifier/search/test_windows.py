"""The arguments of convolutions and of Fourier transforms: shown alike, and exchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from parity.verifier.locate import compare

RNG = np.random.default_rng(9)
KERNEL, X = RNG.normal(size=(5, 3, 3, 3)), RNG.normal(size=(2, 3, 8, 8))


def of_torch(**kwargs):
    def convolved(kernel, x):
        return F.conv2d(x, kernel, **kwargs)

    return convolved, tuple(map(torch.from_numpy, (KERNEL, X)))


def of_jax(stride, padding, dilation=(1, 1)):
    def convolved(kernel, x):
        return jax.lax.conv_general_dilated(
            x, kernel, stride, padding, rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    return convolved, (KERNEL.transpose(2, 3, 1, 0), X.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("b", "cause", "message", "formula"),
    [
        (of_jax((2, 2), [(1, 1)] * 2), "", "", ""),
        (of_jax((2, 2), "SAME"), "padding", "((0,1),(0,1)) where A has 1",
         "conv(x, y, stride=2, padding=((0,1),(0,1)))"),
        (of_jax((2, 2), [(2, 2)] * 2, (2, 2)), "padding and dilation",
         "padding 2, dilation 2 where A has padding 1, dilation 1",
         "conv(x, y, stride=2, padding=2, dilation=2)"),
        (of_torch(stride=2, padding=2, dilation=2), "padding and dilation",
         "padding 2, dilation 2 where A has padding 1, dilation 1",
         "conv(x, y, stride=2, padding=2, dilation=2)"),
    ],
)  # fmt: skip
def test_the_window_of_a_convolution(b, cause, message, formula):
    comparison = compare(of_torch(stride=2, padding=1), b)
    assert comparison.verdict == ("DIFFERENT" if cause else "EQUAL")
    for place in comparison.places:
        assert (place.cause, place.message) == (cause, message)
        assert (place.a.formula, place.b.formula) == ("conv(x, y, stride=2, padding=1)", formula)
    assert bool(comparison.places) == bool(cause)


def test_padding_on_one_side_which_torch_has_not():
    (place,) = compare(of_jax((2, 2), "SAME"), of_torch(stride=2, padding=1)).places
    assert (place.cause, place.message) == ("padding", "1 where A has ((0,1),(0,1))")


def test_the_scale_of_a_fourier_transform():
    a = (lambda x: torch.fft.rfft(x, norm="ortho")), torch.from_numpy(X)
    assert compare(a, (lambda x: jnp.fft.rfft(x, norm="ortho"), X)).verdict == "EQUAL"
    (place,) = compare(a, (jnp.fft.rfft, X)).places
    assert place.a.formula == "fft(x, rfft, scale=1/sqrt(n))"
    assert place.b.formula == "fft(x, rfft)"
