"""Tables that are made outside of the recorded program: which numbers, and which line made them."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from jax import numpy as jnp
from torch import nn
from torch.nn import functional as F

from parity.verifier.compare import compare

WIDTH, TOKENS, SIDE = 8, 6, 4
RNG = np.random.default_rng(0)
WEIGHTS = {"qk": RNG.normal(size=(WIDTH, 2 * WIDTH)), "up": RNG.normal(size=(WIDTH, WIDTH))}
POSITIONS, BIASES = RNG.normal(size=(1, SIDE, SIDE, WIDTH)), RNG.normal(size=(25, 2))
X = RNG.normal(size=(2, TOKENS, WIDTH))
PICTURE, WINDOW = RNG.normal(size=(2, 5, 7, WIDTH)), RNG.normal(size=(2, 9, WIDTH))


def turns(base):
    frequencies = 1 / base ** (np.arange(0, WIDTH, 2) / WIDTH)
    angles = np.arange(TOKENS)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)


def scores(x, w, cos, sin, concatenate):
    q, k = x @ w[:, :WIDTH], x @ w[:, WIDTH:]

    def turned(x):
        a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
        return concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return turned(q) @ turned(k).mT


class OfTorch(nn.Module):
    def __init__(self, base=10000.0):
        super().__init__()
        self.qk = nn.Parameter(torch.from_numpy(WEIGHTS["qk"]))
        cos, sin = map(torch.from_numpy, turns(base))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x):
        for _ in range(2):
            x = torch.tanh(scores(x, self.qk, self.cos, self.sin, torch.cat) @ x)
        return x


class OfFlax(nnx.Module):
    def __init__(self, base):
        self.qk = nnx.Param(jnp.asarray(WEIGHTS["qk"]))
        self.cos, self.sin = turns(base)

    def __call__(self, x):
        for _ in range(2):
            cos, sin = self.cos, self.sin
            x = jnp.tanh(scores(x, self.qk[...], cos, sin, jnp.concatenate) @ x)
        return x


def function(p, x, base):
    cos, sin = turns(base)
    for _ in range(2):
        x = jnp.tanh(scores(x, p["qk"], cos, sin, jnp.concatenate) @ x)
    return x


@pytest.mark.parametrize("side", [
    lambda: (OfFlax(100.0), X),
    lambda: (partial(partial(function, base=100.0), WEIGHTS), X),
    lambda: (OfTorch(100.0), torch.from_numpy(X)),
])  # fmt: skip
def test_cosines_and_sines_of_another_base_are_one_table(side):
    found = compare((OfTorch(), torch.from_numpy(X)), side())
    assert found.causes == ("table",)
    assert "where A has 0.9950041653" in found.places[0].message


def test_cosines_of_angles_that_numpy_made_are_a_table_where_the_other_has_no_such_angles():
    def by_rows_and_columns(p, x):
        places, exponents = jnp.arange(TOKENS)[:, None], jnp.arange(0, WIDTH, 2) / WIDTH
        parts = [places * 10000.0**-each for each in jnp.split(exponents, 2)]
        cos, sin = (jnp.concatenate([*map(f, parts)], -1) for f in (jnp.cos, jnp.sin))
        return jax.nn.softmax(scores(x, p["qk"], cos, sin, jnp.concatenate)) @ x

    def at_once(p, x, base):
        angles = np.arange(TOKENS)[:, None] / base ** (np.arange(0, WIDTH, 2) / WIDTH)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jax.nn.softmax(scores(x, p["qk"], cos, sin, jnp.concatenate)) @ x

    a, right, wrong = (
        partial(f, WEIGHTS)
        for f in (by_rows_and_columns, partial(at_once, base=10000.0), partial(at_once, base=100.0))
    )
    assert compare((a, X), (right, X)).verdict == "EQUAL"
    found = compare((a, X), (wrong, X))
    assert found.causes == ("table",)
    assert any("jnp.cos(angles)" in line.text for line in found.places[0].b.lines)


def test_a_base_that_the_program_itself_has_is_a_number():
    def of_jax(p, x, base):
        angles = jnp.arange(TOKENS)[:, None] / base ** (jnp.arange(0, WIDTH, 2) / WIDTH)
        return scores(x, p["qk"], jnp.cos(angles), jnp.sin(angles), jnp.concatenate)

    a, b = (partial(partial(of_jax, base=base), WEIGHTS) for base in (10000.0, 100.0))
    (place,) = compare((a, X), (b, X)).places
    assert (place.cause, place.message) == ("number", "100 where A has 10000")


def cubic(n, m, a, aligned=False):
    """The matrix by which n numbers become m."""
    matrix = np.zeros((m, n))
    for i in range(m):
        place = i * (n - 1) / (m - 1) if aligned else (i + 0.5) * n / m - 0.5
        for j in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            x = abs(place - j)
            near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
            matrix[i, min(max(j, 0), n - 1)] += near if x <= 1 else far if x < 2 else 0
    return matrix


class Resized(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.from_numpy(POSITIONS))

    def forward(self, x):
        given = self.positions.permute(0, 3, 1, 2)
        return torch.tanh(x + F.interpolate(given, size=(5, 7), mode="bicubic").permute(0, 2, 3, 1))


class ByMatrices(nnx.Module):
    def __init__(self, a, *, aligned=False):
        self.positions = nnx.Param(jnp.asarray(POSITIONS))
        self.rows = cubic(SIDE, 5, a, aligned)
        self.columns = cubic(SIDE, 7, a, aligned)

    def __call__(self, x):
        positions = self.positions[...]
        return jnp.tanh(x + jnp.einsum("im,jn,bmnd->bijd", self.rows, self.columns, positions))


@pytest.mark.parametrize(("model", "said"), [
    (lambda: ByMatrices(-0.5), "by a cubic kernel of -0.5, A by a cubic kernel of -0.75"),
    (lambda: ByMatrices(-0.75, aligned=True), "-0.75, corners aligned, A by a cubic kernel of -0.75"),
])  # fmt: skip
def test_another_cubic_kernel_is_named_and_the_line_that_made_it_is_shown(model, said):
    given = Resized(), torch.from_numpy(PICTURE)
    assert compare(given, (ByMatrices(-0.75), PICTURE)).equal
    (place,) = compare(given, (model(), PICTURE)).places
    assert place.cause == "table"
    assert place.message.endswith(said)
    assert any("= cubic(" in line.text for line in place.b.lines)


def test_jax_resizes_by_another_kernel():
    def resized(p, x):
        return jnp.tanh(x + jax.image.resize(p["positions"], (1, 5, 7, WIDTH), "bicubic"))

    (place,) = compare(
        (Resized(), torch.from_numpy(PICTURE)), (partial(resized, {"positions": POSITIONS}), PICTURE)
    ).places
    assert place.cause == "table"
    assert place.message.endswith("A's is a cubic kernel of -0.75")


def relative(*, transposed=False):
    places = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij")).reshape(2, -1)
    apart = places[:, :, None] - places[:, None]
    index = (apart[0] + 2) * 5 + apart[1] + 2
    return index.T if transposed else index


class Biased(nn.Module):
    index: torch.Tensor

    def __init__(self):
        super().__init__()
        self.biases = nn.Parameter(torch.from_numpy(BIASES))
        self.register_buffer("index", torch.from_numpy(relative()), persistent=False)

    def forward(self, x):
        bias = self.biases[self.index.view(-1)].view(9, 9, -1).permute(2, 0, 1)
        return torch.softmax((x @ x.mT)[:, None] + bias, -1) @ x[:, None]


class BiasedByFlax(nnx.Module):
    def __init__(self, *, transposed):
        self.biases = nnx.Param(jnp.asarray(BIASES))
        self.index = relative(transposed=transposed)

    def __call__(self, x):
        bias = self.biases[...][self.index].transpose(2, 0, 1)
        return jax.nn.softmax((x @ x.mT)[:, None] + bias) @ x[:, None]


def test_an_index_of_relative_positions_is_said_to_be_transposed():
    given = Biased(), torch.from_numpy(WINDOW)
    assert compare(given, (BiasedByFlax(transposed=False), WINDOW)).equal
    (place,) = compare(given, (BiasedByFlax(transposed=True), WINDOW)).places
    assert (place.cause, place.message) == ("table", "its numbers of index are A's, transposed")
    assert any("self.index = relative" in line.text for line in place.b.lines)
