"""The catalogue on heads in another order, rotated prefix tokens and attention pooling."""

from dataclasses import replace

import numpy as np
import pytest

from parity.verifier.diagnose.explain import explain
from tests.parity.verifier.diagnose.test_catalogue import first_cause, segment

pytestmark = pytest.mark.quick

B, P, N, D, H = 2, 3, 7, 30, 5
T = P + N
RANDOM = np.random.default_rng(2)


def draw(*shape):
    return RANDOM.standard_normal(shape)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def cut(x, heads=H):
    """(B, T, h d) to (B, h, T, d)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def join(y):
    """(B, h, T, d) to (B, T, h d)."""
    return y.swapaxes(1, 2).reshape(len(y), y.shape[2], -1)


X, QKV = draw(B, T, D), draw(B, T, 3 * D)
PARTS = tuple(map(cut, np.split(QKV, 3, -1)))
FACTS = {"num_heads": H}


def weights(q, k):
    return softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)


def mixed(q, k, v):
    return weights(q, k) @ v


def core(result, target="proj in", before=None, facts=None):
    tensors = {"in": X} | ({"to_qkv out": QKV} if before is None else before)
    return segment(result, tensors, target=target, facts=FACTS if facts is None else facts)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([4, 3, 2, 1, 0], "heads in reverse order, 4, 3, 2, 1, 0"),
        ([2, 0, 1, 4, 3], "heads in the order 2, 0, 1, 4, 3"),
    ],
)
def test_heads_joined_in_another_order(order, said):
    y = mixed(*PARTS)
    cause = first_cause(core(join(y)), core(join(y[:, order])))
    assert (cause.name, cause.a, cause.b) == ("heads-order", "heads in order", said)
    assert cause.advice.startswith("B: y.transpose(1, 2).reshape(B, N, h * d)")
    assert first_cause(core(join(y[:, order])), core(join(y))).advice.startswith("A: y.transpose")


def test_attention_weights_of_heads_in_another_order():
    w = weights(*PARTS[:2])
    cause = first_cause(core(w, "attn_drop in"), core(w[:, [1, 0, 2, 4, 3]], "attn_drop in"))
    assert (cause.name, cause.b) == ("heads-order", "heads in the order 1, 0, 2, 4, 3")


def test_queries_of_heads_in_another_order():
    q = PARTS[0]
    cause = first_cause(core(q, "q_norm in"), core(q[:, ::-1], "q_norm in"))
    assert (cause.name, cause.b) == ("heads-order", "heads in reverse order, 4, 3, 2, 1, 0")


def test_heads_in_another_order_where_they_are_packed_otherwise():
    parts = np.moveaxis(QKV.reshape(B, T, H, 3, -1), 3, 0).swapaxes(2, 3)
    y = mixed(*parts)
    cause = first_cause(core(join(y)), core(join(y[:, ::-1])))
    assert cause.name == "heads-order"


@pytest.mark.parametrize("heads", [[0, 0, 2, 3, 4], [1, 0, 2, 3, 4]])
def test_heads_that_are_no_permutation_are_unknown(heads):
    y = mixed(*PARTS)
    other = y[:, heads] * np.linspace(1.0, 1.1, H)[:, None, None]
    assert "not in the catalogue" in (explain(core(join(y)), core(join(other))).unknown or "")


ANGLES = draw(N, 3)


def turned(x, rows, half=False):
    """Heads (B, h, T, 6) of which token t is turned by the angles of row rows[t], of none for -1."""
    angles = np.where(np.array(rows)[:, None] < 0, 0.0, ANGLES[rows])
    a, b = np.split(x, 2, -1) if half else (x[..., ::2], x[..., 1::2])
    a, b = a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)
    return np.concatenate([a, b], -1) if half else np.stack([a, b], -1).reshape(x.shape)


def rotary(rows, *, half=False, table=ANGLES):
    q, k, v = PARTS
    before = {"in.sin": np.sin(table), "in.cos": np.cos(table), "to_qkv out": QKV}
    return core(join(mixed(turned(q, rows, half), turned(k, rows, half), v)), before=before)


PATCHES = [-1] * P + list(range(N))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([0, 1, 2, *range(N)], "prefix tokens turned too, as the first patches are"),
        ([0, 0, 0, *range(N)], "prefix tokens turned too, as the first patch is"),
        ([N - 3, N - 2, N - 1, *range(N)], "prefix tokens turned too, as the last patches are"),
        ([*range(N), -1, -1, -1], "the first tokens turned in place of the patches"),
        ([*range(N), 0, 1, 2], "every token turned, the last ones as the first patches"),
    ],
)
def test_prefix_tokens_that_are_rotated(rows, said, half):
    cause = first_cause(rotary(PATCHES, half=half), rotary(rows, half=half))
    assert (cause.name, cause.a, cause.b) == ("rotary-prefix", "prefix tokens not turned", said)
    assert cause.advice == (
        "B: torch.cat([q[..., :3, :], rotate(q[..., 3:, :])], dim=-2), and k likewise"
    )


def test_a_table_of_angles_for_every_token():
    q, k, v = PARTS
    whole = draw(T, 3)
    a = rotary(PATCHES)
    s, c = np.sin(whole), np.cos(whole)

    def turn(x):
        y, z = x[..., ::2], x[..., 1::2]
        return np.stack([y * c - z * s, z * c + y * s], -1).reshape(x.shape)

    before = {"in.sin": s, "in.cos": c, "to_qkv out": QKV}
    cause = first_cause(a, core(join(mixed(turn(q), turn(k), v)), before=before))
    assert (cause.name, cause.b) == ("rotary-prefix", "every token turned")


def test_rows_that_turn_the_prefix_by_nothing_are_no_cause():
    q, k, v = (turned(PARTS[0], PATCHES), turned(PARTS[1], PATCHES), PARTS[2])
    b = rotary(PATCHES, table=np.concatenate([np.zeros((P, 3)), ANGLES]))
    b = replace(b, result=join(mixed(2 * q, k, v)))
    assert [cause.name for cause in explain(rotary(PATCHES), b).causes] == ["attention-scale"]


def test_a_prefix_turned_by_other_angles_is_unknown():
    q, k, v = (x.copy() for x in PARTS)
    q, k = turned(q, PATCHES), turned(k, PATCHES)
    q[:, :, :P] = q[:, :, :P] * 1.1
    b = replace(rotary(PATCHES), result=join(mixed(q, k, v)))
    assert "not in the catalogue" in (explain(rotary(PATCHES), b).unknown or "")


PROBE, KEYS, VALUES = draw(1, 1, D), draw(B, T, D), draw(B, T, D)


def pooled(first, *, given=None, packed=True, seen=None, heads=H, scale=1.0):
    """Attention pooling whose keys are those of the tokens from `first` on.

    Args:
        given: from which token on the module was given them.
        seen: from which of its keys on they are attended to.
    """
    k, v = KEYS[:, first:], VALUES[:, first:]
    q, keys, values = (cut(x, heads) for x in (PROBE, k[:, seen:], v[:, seen:]))
    y = softmax(q @ keys.swapaxes(-1, -2) * scale * (D // heads) ** -0.5) @ values
    before = {"in": X[:, given or 0 :], "q out": PROBE}
    before |= {"kv out": np.concatenate([k, v], -1)} if packed else {"key out": k, "value out": v}
    name = "kv in" if packed else "key in"
    made = segment(join(y)[:, 0], before, target="out in", facts=FACTS)
    return replace(made, given={name: X[:, first:]})


@pytest.mark.parametrize("packed", [True, False])
def test_pooling_that_attends_to_the_prefix(packed):
    cause = first_cause(pooled(P, packed=packed), pooled(0, packed=packed))
    assert cause.name == "pooling-prefix"
    assert cause.a == "attention over the last 7 tokens"
    assert cause.b == "attention over the last 10 tokens"
    assert cause.advice == "B: keys and values of x[:, 3:] alone"


def test_pooling_that_masks_the_prefix():
    cause = first_cause(pooled(0, seen=P), pooled(0))
    assert (cause.name, cause.a) == ("pooling-prefix", "attention over the last 7 tokens")
    scaled = explain(pooled(0, seen=P), pooled(P, scale=6**0.5)).causes  # the mask is no other cause
    assert [each.name for each in scaled] == ["attention-scale"]


def test_pooling_of_tokens_that_were_left_out_before():
    cause = first_cause(pooled(P, given=P), pooled(0))
    assert (cause.name, cause.advice) == ("pooling-prefix", "B: keys and values of x[:, -7:] alone")
    scaled = explain(pooled(P, given=P), pooled(P, scale=6**0.5)).causes
    assert [each.name for each in scaled] == ["attention-scale"]


def test_the_heads_of_attention_pooling():
    assert first_cause(pooled(P), pooled(P, heads=3)).name == "attention-heads"


def test_attention_pooling_that_is_not_in_the_catalogue():
    b = pooled(P)
    other = replace(b, result=b.result * (1 + 1e-3 * draw(D)))
    assert "not in the catalogue" in (explain(b, other).unknown or "")
