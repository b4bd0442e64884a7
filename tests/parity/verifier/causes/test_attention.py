"""Attention in chunks, as for long sequences, and along another axis, beside attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.compare import compare

RNG = np.random.default_rng(5)
Q, K, V = (0.1 * RNG.normal(size=(2, n, 4)) for n in (9, 17, 17))
CHUNK = 5


def whole(p, x):
    return jax.nn.softmax(x @ p["k"].mT) @ p["v"]


def online(fault):
    """Keys are padded to chunks; `fault` says what is wrong."""

    def function(p, x):
        pad = -p["k"].shape[1] % CHUNK
        k, v = (jnp.pad(p[n], ((0, 0), (0, pad), (0, 0))) for n in "kv")
        keep = jnp.arange(k.shape[1]) < k.shape[1] - (0 if fault == "padding" else pad)
        k, v = (each.reshape(len(each), -1, CHUNK, 4).swapaxes(0, 1) for each in (k, v))

        def step(state, part):
            (top, total, out), (k, v, keep) = state, part
            scores = jnp.where(keep, x @ k.mT, -jnp.inf)
            higher = jnp.maximum(top, scores.max(-1))
            shrunk = jnp.exp(top - higher)
            each = jnp.exp(scores - higher[..., None])
            total = (total if fault == "total" else total * shrunk) + each.sum(-1)
            return (higher, total, out * shrunk[..., None] + each @ v), None

        start = jnp.full(x.shape[:2], -1e30), jnp.zeros(x.shape[:2]), jnp.zeros(x.shape)
        (_, total, out), _ = jax.lax.scan(step, start, (k, v, keep.reshape(-1, CHUNK)))
        return out / total[..., None]

    return function


@pytest.mark.parametrize(
    ("fault", "cause", "said"),
    [
        ("padding", "mask", "3 of 5 along axis 2"),
        ("total", "factor left out", "only A multiplies the sum at"),
        ("", "", ""),
    ],
)
def test_a_mistake_of_a_softmax_in_chunks_is_named(fault, cause, said):
    weights = {"k": K, "v": V}
    comparison = compare((whole, (weights, Q)), (online(fault), (weights, Q)))
    assert comparison.verdict == ("DIFFERENT" if fault else "EQUAL")
    assert set(comparison.causes) == {cause} - {""}, comparison.to_text()
    assert said in comparison.to_text()


def test_rows_that_are_lost_are_said():
    def joined(*parts):
        def function(p, x):
            rows = jnp.concatenate([x, *(p["k"][:, part] for part in parts)], 1)
            for _ in range(8):  # a place ends within sixty operations, or has no end
                rows = jnp.tanh(rows + jax.nn.softmax(rows @ rows.mT / 4) @ rows)
            return rows[:, 0]

        return function, ({"k": K[:, :8]}, Q[:, :3])

    lost = slice(0, 2), slice(1, 2), slice(4, 8)
    comparison = compare(joined(slice(0, 8)), joined(*lost))
    assert not comparison.causes, comparison.to_text()
    said = "axis 1 of [2, 10, 4] has 10 rows where A's has 11: A's rows 0, 1, 2, 3, 4, 4, 7, 8, 9, 10"
    assert said in comparison.to_text()


class Attention(torch.nn.Module):
    def __init__(self, *, batch_first):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(24, 3, batch_first=batch_first)

    def forward(self, x):
        return self.attend(x, x, x, need_weights=False)[0]


def test_tokens_that_attend_to_the_other_images_of_the_batch():
    a, b = (Attention(batch_first=each).eval() for each in (True, False))
    b.load_state_dict(a.state_dict())
    x = torch.from_numpy(RNG.normal(size=(4, 7, 24)).astype(np.float32))
    (place,) = compare((a, x), (b, x), backward=False).places
    said = "over axis 0, of length 4, of queries [4, 3, 7, 8], A's over axis 2, of length 7"
    assert (place.cause, place.message) == ("attention along another axis", said)
