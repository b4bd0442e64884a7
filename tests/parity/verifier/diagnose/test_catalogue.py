"""The catalogue names the right cause of a difference, and none where it knows none."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from parity.measure.traces.format import ModuleFacts
from parity.verifier.diagnose.catalogue import heads, projections
from parity.verifier.diagnose.explain import explain
from parity.verifier.diagnose.segment import Segment

pytestmark = pytest.mark.quick

B, T, D, H = 2, 10, 30, 5
RANDOM = np.random.default_rng(0)


def draw(*shape):
    return RANDOM.standard_normal(shape)


def segment(
    result, before, parameters=None, *, path="m", kind="Module", target="out", facts=None, **options
):
    return Segment(
        "torch",
        ModuleFacts(path=path, kind=kind, facts=facts or {}),
        target,
        np.asarray(result, np.float64),
        before,
        parameters or {},
        {"child": ModuleFacts(path=f"{path}.child", kind="Linear")} if target != "out" else {},
        **options,
    )


def first_cause(a, b):
    verdict = explain(a, b)
    assert verdict.causes, verdict.unknown
    assert verdict.unknown is None
    cause = verdict.causes[0]
    assert max(cause.residual_a, cause.residual_b) < 0.1 * cause.difference
    return cause


X = 3 * draw(B, T, D)
TX = torch.tensor(X)
GAIN, SHIFT = draw(D), draw(D)


def activation(result, **options):
    return segment(result, {"in": X}, path="blocks.0.mlp.act", kind="Activation", **options)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (F.gelu(TX, approximate="tanh"), "gelu-kind"),
        (TX * torch.sigmoid(1.702 * TX), "gelu-kind"),
        (F.silu(TX), "activation-kind"),
        (F.relu(TX), "activation-kind"),
        (TX, "missing-activation"),
    ],
)
def test_activation(other, name):
    assert first_cause(activation(F.gelu(TX)), activation(other)).name == name


def test_gate_order():
    wide = torch.tensor(draw(B, T, 2 * D))
    first, second = wide.chunk(2, -1)
    a, b = (
        segment(
            F.silu(gate) * value,
            {"fc1 out": wide.numpy()},
            target="fc2 in",
            kind="SwiGLU",
            facts={"act": "silu"},
        )
        for gate, value in ((first, second), (second, first))
    )
    assert first_cause(a, b).name == "gate-order"


def norm(eps, *, said=1e-6, x=TX, weight=GAIN, bias=SHIFT, change=lambda y: y, dtype=torch.float64):
    y = F.layer_norm(
        x.to(dtype),
        (D,),
        None if weight is None else torch.tensor(weight, dtype=dtype),
        None if bias is None else torch.tensor(bias, dtype=dtype),
        eps,
    )
    return segment(
        change(y).double(),
        {"in": x.numpy()},
        {"weight": GAIN, "bias": SHIFT},
        kind="LayerNorm",
        facts={"eps": said},
        dtype=str(dtype).partition(".")[2],
    )


@pytest.mark.parametrize("eps", [1e-5, 1e-12, 3.7e-5])
def test_norm_epsilon(eps):
    cause = first_cause(norm(1e-6), norm(eps))
    assert (cause.name, cause.b) == ("norm-epsilon", f"epsilon {eps:.4g}")
    assert "eps=1e-06" in cause.advice


def test_norm_epsilon_in_float32():
    cause = first_cause(
        *(norm(eps, x=TX.float().double() / 8, dtype=torch.float32) for eps in (1e-6, 1e-5))
    )
    assert (cause.name, cause.a, cause.b) == ("norm-epsilon", "epsilon 1e-06", "epsilon 1e-05")


def test_norm_parts():
    plain = norm(1e-6)
    assert first_cause(plain, norm(1e-6, weight=None)).name == "missing-gain"
    assert first_cause(plain, norm(1e-6, weight=1 + GAIN)).name == "norm-gain"
    assert first_cause(plain, norm(1e-6, bias=None)).name == "norm-bias"
    unbiased = (
        GAIN * (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True, ddof=1) + 1e-6) + SHIFT
    )
    assert first_cause(plain, norm(0, change=lambda y: torch.tensor(unbiased))).name == "norm-variance"
    kept = GAIN * X / np.sqrt(X.var(-1, keepdims=True) + (X.mean(-1, keepdims=True)) ** 2 + 1e-6) + SHIFT
    assert first_cause(plain, norm(0, change=lambda y: torch.tensor(kept))).name == "norm-centring"


def test_one_pass_variance_is_told_by_its_cancellation():
    x = (TX + 200 * torch.tensor(draw(B, T, 1))).float().double()
    y = x.float()
    variance = (y * y).mean(-1, keepdim=True) - y.mean(-1, keepdim=True) ** 2
    one = (y - y.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-6)
    one = one * torch.tensor(GAIN, dtype=torch.float32) + torch.tensor(SHIFT, dtype=torch.float32)
    a, b = (
        norm(1e-6, x=x, dtype=torch.float32),
        norm(1e-6, x=x, dtype=torch.float32, change=lambda _: one),
    )
    assert first_cause(a, b).name == "norm-variance"


def test_rounding_of_the_mean_of_large_values_is_no_other_norm():
    x = (TX + 3000 * torch.tensor(draw(B, T, 1))).float().double()
    y = x.float()
    mean = torch.nextafter(y.mean(-1, keepdim=True), torch.tensor(1e9))  # as another order of sums gives
    centred = y - mean
    variance = (y * y).mean(-1, keepdim=True) - y.mean(-1, keepdim=True) ** 2
    spreads = ((centred**2).mean(-1, keepdim=True), variance.abs())
    a, b = (
        norm(1e-6, x=x, dtype=torch.float32, change=lambda _, s=s: (centred / torch.sqrt(s + 1e-6)
             * torch.tensor(GAIN, dtype=torch.float32) + torch.tensor(SHIFT, dtype=torch.float32)))
        for s in spreads
    )  # fmt: skip
    assert first_cause(a, b).name == "norm-variance"


W = draw(D, D)


def linear(result, bias=SHIFT, **options):
    return segment(
        result, {"in": X}, {"weight": W} | ({} if bias is None else {"bias": bias}), **options
    )


def test_linear():
    plain = linear(X @ W.T + SHIFT)
    assert first_cause(plain, linear(X @ W.T)).name == "linear-bias"
    assert first_cause(plain, linear(X @ W.T, bias=None)).name == "linear-bias"
    assert first_cause(plain, linear(X @ W.T + 2 * SHIFT)).b == "bias added twice"
    assert first_cause(plain, linear(X @ W + SHIFT)).name == "transposed-weight"
    order = RANDOM.permutation(D)
    assert first_cause(plain, linear((X @ W.T + SHIFT)[..., order])).name == "permuted-outputs"


def test_precision():
    plain = linear(X @ W.T + SHIFT)
    low = TX.bfloat16().double() @ torch.tensor(W).bfloat16().double().T + torch.tensor(SHIFT)
    assert first_cause(plain, linear(low)).b == "operands rounded to bfloat16"
    single = TX.float() @ torch.tensor(W).float().T + torch.tensor(SHIFT).float()
    cause = explain(plain, linear(single.double())).causes[0]
    assert (cause.name, cause.b) == ("compute-type", "computed in float32")


QKV = draw(B, T, 3 * D)


def attention(
    *, scale=6**-0.5, packing="shd", order=(0, 1, 2), axis=-1, joined=True, qkv=QKV, bias=None
):
    sizes = {"s": 3, "h": H, "d": D // H}
    parts = torch.tensor(qkv).reshape(B, T, *(sizes[each] for each in packing))
    parts = torch.einsum(f"bt{packing}->sbhtd", parts)
    q, k, v = (parts[i] for i in order)
    logits = q @ k.transpose(-1, -2) * scale
    y = torch.softmax(logits if bias is None else logits + torch.tensor(bias), axis) @ v
    y = y.transpose(1, 2) if joined else y
    return y.reshape(B, T, D)


def core(result, **before):
    tensors = {"in": X, "qkv out": QKV} | before
    return segment(result, tensors, path="blocks.0.attn", target="proj in", facts={"num_heads": H})


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"scale": 30**-0.5}, "attention-scale"),
        ({"scale": 0.3}, "attention-scale"),
        ({"packing": "hsd"}, "qkv-packing"),
        ({"packing": "hds"}, "qkv-packing"),
        ({"order": (1, 2, 0)}, "qkv-order"),
        ({"axis": -2}, "softmax-axis"),
        ({"joined": False}, "heads-layout"),
        ({"scale": 1 / 6, "axis": -2}, "attention-scale + softmax-axis"),
    ],
)
def test_attention(options, name):
    assert first_cause(core(attention()), core(attention(**options))).name == name


def test_one_fault_more_than_the_other_side_s_departures():
    """Departures are counted from what the other side does, which may be unusual itself."""
    unusual = {"packing": "hsd", "scale": 1.0}
    a, b = attention(**unusual), attention(**unusual, order=(1, 0, 2))
    cause = first_cause(core(a), core(b))
    assert (cause.name, cause.a, cause.b) == ("qkv-order", "q, k, v", "k, q, v")


def test_attention_bias():
    bias = {"rel_pos_bias out": draw(H, T, T)}
    a = core(attention(bias=bias["rel_pos_bias out"]), **bias)
    assert first_cause(a, core(attention(), **bias)).name == "attention-bias"
    b = core(attention(bias=bias["rel_pos_bias out"].swapaxes(1, 2)), **bias)
    assert first_cause(a, b).b == "the bias transposed"


def test_attention_of_separate_projections_against_a_joint_one():
    parts = dict(zip(("query out", "key out", "value out"), np.split(QKV, 3, -1), strict=True))
    a, b = (
        segment(attention(scale=s), {"in": X} | parts, target="out in", facts={"num_heads": H})
        for s in (6**-0.5, 1.0)
    )
    assert first_cause(a, b).b == "no scale"


def test_which_heads_share_keys():
    kv, d = 2, 5  # of 6 heads
    packed = draw(B, T, (6 + 2 * kv) * d)
    q, k, _ = np.split(packed.reshape(B, T, -1, d).swapaxes(1, 2), [6, 6 + kv], axis=1)
    facts = {"num_heads": 6, "num_kv_heads": kv}

    def weights(keys):
        logits = torch.tensor(q @ keys.swapaxes(-1, -2) * d**-0.5)
        before = {"in": X, "qkv out": packed}
        return segment(logits.softmax(-1), before, target="attn_drop in", facts=facts)

    a, b = weights(np.repeat(k, 3, 1)), weights(np.tile(k, (1, 3, 1, 1)))
    assert first_cause(a, b).name == "grouped-heads"
    a, b = (
        replace(s, module=ModuleFacts(path="m", kind="Module", facts={"num_heads": 4})) for s in (a, b)
    )
    assert "not in the catalogue" in (
        explain(a, b).unknown or ""
    )  # 4 heads do not divide the 50 channels


OUTSIDE = [
    (activation(F.gelu(TX)), activation(F.gelu(TX * 1.01) + 0.01)),
    (norm(1e-6), norm(1e-6, weight=GAIN * (1 + 1e-3 * draw(D)))),
    (linear(X @ W.T + SHIFT), linear(X @ (W + 1e-3 * draw(D, D)).T + SHIFT)),
    (core(attention()), core(attention(qkv=QKV * (1 + 1e-3 * draw(3 * D))))),
]


@pytest.mark.parametrize(("a", "b"), OUTSIDE)
def test_what_is_not_in_the_catalogue_is_unknown(a, b):
    verdict = explain(a, b)
    assert not verdict.causes
    assert "not in the catalogue" in (verdict.unknown or "")


def test_nothing_to_explain():
    assert explain(norm(1e-6), norm(1e-6)).to_dict() == {"causes": [], "unknown": None}


def test_other_parameters_are_no_cause():
    b = segment(X @ (2 * W).T, {"in": X}, {"weight": 2 * W})
    assert "parameters weight differ" in (explain(linear(X @ W.T, bias=None), b).unknown or "")


def test_projections_apart_and_one_after_the_other_are_called_alike():
    """Else a pair of which one packs q, k and v would be told to repack them, whatever its fault is."""
    packed = {option.value: option.label for option in heads.packings()}
    apart = {option.value: option.label for option in projections._SPLITS}
    assert {axes: packed[f"s{axes}"] for axes in apart} == apart
    assert len(set(packed.values())) == 6
