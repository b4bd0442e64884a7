"""FlexAttention, which torch runs through its compiler, is compared operation by operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from parity.verifier.compare import compare
from vit_config import InputError

N, HEADS, WIDTH = 6, 2, 4
draw = np.random.default_rng(0)
X = draw.normal(size=(1, HEADS, N, WIDTH)).astype(np.float32)
TABLE = draw.normal(size=(HEADS, 2 * N - 1)).astype(np.float32)


class Biased(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.tensor(TABLE))

    def forward(self, x):
        def biased(score, batch, head, i, j):
            return score + self.table[head, i - j + N - 1]

        return flex_attention(x, x * 0.5, x + 1, score_mod=biased)


def near(batch, head, i, j):
    return (i - j).abs() < 3


def masked(x):
    mask = create_block_mask(near, 1, HEADS, N, N, device="cpu", BLOCK_SIZE=N)
    return flex_attention(x, x * 0.5, x + 1, block_mask=mask)


def ported(table, x, *, limit=N, scale=WIDTH**-0.5):
    apart = jnp.arange(N)[:, None] - jnp.arange(N)
    scores = jnp.einsum("bhid,bhjd->bhij", x, x * 0.5) * scale
    scores = jnp.where(abs(apart) < limit, scores + table[:, apart + N - 1], -jnp.inf)
    return jax.nn.softmax(scores) @ (x + 1)


@pytest.mark.parametrize("scale", [WIDTH**-0.5, 1.0])
def test_a_score_mod_that_reads_a_parameter(scale):
    port = lambda table, x: ported(table, x, scale=scale)  # noqa: E731
    compared = compare((Biased(), torch.from_numpy(X)), (port, (TABLE, X)))
    if scale == 1.0:
        assert compared.causes == ("scale left out",)
        return
    assert compared.verdict == "EQUAL"
    assert compared.backward is not None
    assert compared.backward.counts.outputs == 2


def test_another_operator_of_functions_is_refused_by_its_name():
    branch = lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))  # noqa: E731
    with pytest.raises(
        InputError, match=r"torch's cond in \S+\.py:\d+ calls functions that it compiles"
    ):
        compare((branch, torch.from_numpy(X)), (branch, torch.from_numpy(X)))


def test_a_mask_of_blocks():
    port = lambda x: ported(jnp.zeros_like(TABLE), x, limit=3)  # noqa: E731
    compared = compare((masked, torch.from_numpy(X)), (port, X))
    assert compared.verdict == "EQUAL"
    assert compared.backward is not None
    assert compared.backward.counts.outputs == 1
    assert torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is False
