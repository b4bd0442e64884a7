"""The catalogue on whole models: patches, tokens, residual sums, pooling, dropout, gradients."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from parity.measure.traces.format import ModuleFacts
from parity.verifier.diagnose.backward import GradientSegment, explain_gradient
from parity.verifier.diagnose.causes import CAUSES
from parity.verifier.diagnose.explain import explain
from parity.verifier.diagnose.segment import Segment
from vit_config.numerics.resample import resample_rows
from vit_config.numerics.tables import count_relative_positions, relative_position_index

pytestmark = pytest.mark.quick

B, T, D = 2, 10, 30
RANDOM = np.random.default_rng(1)
CHILDREN = {"child": ModuleFacts(path="child", kind="Linear")}


def draw(*shape):
    return RANDOM.standard_normal(shape)


def names(make, ordinary, other):
    verdict = explain(make(ordinary), make(other))
    return [cause.name for cause in verdict.causes] or [verdict.unknown]


def module(path, kind, target, before, parameters=None, **options):
    facts = ModuleFacts(path=path, kind=kind, facts=options.pop("facts", {}))
    children = CHILDREN if target != "out" else {}
    return lambda result: Segment(
        "jax",
        facts,
        target,
        np.asarray(result, np.float64),
        before,
        parameters or {},
        children,
        **options,
    )


X, NORMED, BRANCH, GAMMA = draw(B, T, D), draw(B, T, D), draw(B, T, D), draw(D)
SCALED = BRANCH * GAMMA
BEFORE = {
    "in": X,
    "norm1 out": NORMED,
    "attn out[0]": BRANCH,
    "ls1 out": SCALED,
    "drop_path1 out": SCALED,
}
BLOCK = module("blocks.0", "Block", "norm2 in", BEFORE)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (SCALED, "missing-residual"),
        (X + 2 * SCALED, "branch-twice"),
        (X + 1.001 * SCALED, "branch-scale"),
        (X + BRANCH, "layer-scale"),
        (NORMED + SCALED, "wrong-residual"),
        (X, "missing-branch"),
    ],
)
def test_residual_sum(other, name):
    assert names(BLOCK, X + SCALED, other)[0] == name


def test_gains_of_a_block_may_be_swapped():
    block = module(
        "b", "Layer", "out", {"in": X, "attn out": BRANCH}, {"gamma_1": GAMMA, "gamma_2": draw(D)}
    )
    gammas = list(block(X).parameters.values())
    assert names(block, X + BRANCH * gammas[0], X + BRANCH * gammas[1])[0] == "layer-scale"


def test_the_layer_scale_of_the_other_branch():
    other = draw(D)
    make = module("b.ls1", "Scale", "out", {"in": X}, {"gamma": GAMMA}, beside={"ls2.gamma": other})
    (cause,) = explain(make(X * GAMMA), make(X * other)).causes
    assert (cause.name, cause.b) == ("layer-scale", "in x ls2.gamma")


def test_a_norm_behind_the_branch_is_not_a_missing_branch():
    before, behind = ("norm1", "attn", "norm2"), ("attn", "norm1", "norm2")
    a = module("b", "Block", "norm1 in", {"in": X}, called=before)(X)
    b = module("b", "Block", "norm1 in", {"in": X, "attn out": BRANCH}, called=behind)(X + BRANCH)
    assert [cause.name for cause in explain(a, b).causes] == ["norm-place"]
    assert explain(a, replace(b, called=before)).causes[0].name == "missing-branch"


def test_a_norm_behind_a_module_is_not_another_input():
    before, behind = ("norm1", "attn"), ("attn", "norm1")
    seen = {"in": X, "norm1 out": NORMED}
    a = module("b", "Block", "attn in", seen, called=before, given={"norm1 in": X})(NORMED)
    b = module("b", "Block", "attn in", {"in": X}, called=behind)(X)
    (cause,) = explain(a, b).causes
    assert (cause.name, cause.advice) == ("norm-place", "B: call norm1 before attn")
    (cause,) = explain(b, a).causes
    assert (cause.name, cause.advice) == ("norm-place", "B: call norm1 after attn")
    without = [cause.name for cause in explain(a, replace(b, called=("attn",))).causes]
    assert "norm-place" not in without


def test_the_logits_of_one_of_two_heads():
    logits, distilled = draw(B, 17), draw(B, 17)
    heads = {"head out": logits, "head_dist out": distilled}
    make = module("", "ViT", "out.logits", heads)
    (cause,) = explain(make((logits + distilled) / 2), make(logits)).causes
    assert (cause.name, cause.a, cause.b) == (
        "missing-head", "(head out + head_dist out) / 2", "head out"
    )  # fmt: skip
    assert cause.advice == "B: (head out + head_dist out) / 2"
    assert names(make, (logits + distilled) / 2, logits + distilled)[0] != "missing-head"


@pytest.mark.parametrize("prefix", [0, 1])
def test_relative_positions(prefix):
    rows = relative_position_index((2, 3))[1 - prefix :, 1 - prefix :]
    table = draw(count_relative_positions((2, 3)) - (0 if prefix else 3), 5)
    make = module("bias", "Bias", "out", {}, {"table": table}, facts={"grid": [2, 3]})
    bias = table[rows].transpose(2, 0, 1)
    (cause,) = explain(make(bias), make(bias.swapaxes(1, 2))).causes
    assert (cause.name, cause.b) == ("attention-bias", "offsets from key to query")
    assert "not in the catalogue" in names(make, bias, 1.01 * bias)[0]


IMAGES, KERNEL = draw(B, 21, 15, 3), draw(D, 3, 7, 5)
PATCH = module("patch_embed.proj", "Conv", "out", {"in": IMAGES}, {"weight": KERNEL, "bias": GAMMA})


def convolve(images=IMAGES, kernel=KERNEL):
    x = torch.tensor(images.copy()).permute(0, 3, 1, 2)
    return F.conv2d(x, torch.tensor(kernel.copy()), torch.tensor(GAMMA), stride=(7, 5)).permute(
        0, 2, 3, 1
    )


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (convolve(IMAGES[..., ::-1]), "channel-order"),
        (convolve((IMAGES - 0.5) / 0.5), "input-normalisation"),
        (convolve(IMAGES * [1.0, 1.1, 0.9] + 0.2), "input-normalisation"),
        (convolve(kernel=KERNEL[:, :, ::-1]), "patch-value-order"),
        (convolve(kernel=KERNEL.reshape(D, 7, 5, 3).transpose(0, 3, 1, 2)), "patch-value-order"),
        (convolve() - torch.tensor(GAMMA), "patch-bias"),
    ],
)
def test_patch_embedding(other, name):
    assert names(PATCH, convolve(), other)[0] == name


def test_flattened_patches():
    cut = IMAGES.reshape(B, 3, 7, 3, 5, 3).transpose(0, 1, 3, 2, 4, 5)  # (B, gh, gw, h, w, C)
    a, b = cut.reshape(B, 9, -1), np.moveaxis(cut, -1, 3).reshape(B, 9, -1)
    assert (
        names(module("patch_embed", "Patches", "proj in", {"in": IMAGES}), a, b)[0]
        == "patch-value-order"
    )


PATCHES, CLASS, TABLE = draw(B, 9, D), draw(1, 1, D), draw(1, T, D)
TOKENS = module(
    "",
    "ViT",
    "pos_drop in",
    {"in": IMAGES, "patch_embed out": PATCHES},
    {"cls_token": CLASS, "pos_embed": TABLE},
)
FIRST = np.concatenate([np.repeat(CLASS, B, 0), PATCHES], 1)
LAST = np.concatenate([PATCHES, np.repeat(CLASS, B, 0)], 1)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (FIRST, "missing-positions"),
        (LAST + TABLE, "prefix-place"),
        (np.roll(FIRST + TABLE, -1, 1), "prefix-place"),
        (FIRST + np.roll(TABLE, 1, 1), "positions"),
        (np.concatenate([FIRST[:, :1], FIRST[:, 1:] + TABLE[:, 1:]], 1), "positions"),
    ],
)
def test_tokens(other, name):
    assert names(TOKENS, FIRST + TABLE, other)[0] == name


def test_resampled_positions():
    table = draw(17, D)  # a class token and 4x4
    make = module(
        "",
        "ViT",
        "pos_drop in",
        {"in": IMAGES, "e out": PATCHES},
        {"cls_token": CLASS, "pos_embed": table[None]},
    )
    a, b = (FIRST + resample_rows(table, (4, 4), (3, 3), rule, 1) for rule in ("bicubic", "bilinear"))
    assert names(make, a, b)[0] == "position-resampling"


POOL = module("", "ViT", "head in", {"in": IMAGES, "blocks.2 out[0]": X, "norm out": NORMED})


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (NORMED.mean(1), "pooling"),
        (NORMED[:, 1:].mean(1), "pooling"),
        (NORMED.max(1), "pooling"),
        (X[:, 0], "missing-norm"),
        (np.tanh(NORMED[:, 0]), "pre-logits"),
    ],
)
def test_pooling(other, name):
    assert names(POOL, NORMED[:, 0], other)[0] == name


def test_a_norm_of_the_pooled_vector():
    tokens, pooled = {"in": IMAGES, "blocks.2 out[0]": X}, X[:, 1:].mean(1)
    vector = draw(B, D)  # what a norm made of the pooled tokens
    behind = module("", "ViT", "head in", {**tokens, "norm out": vector}, given={"norm in": pooled})
    before = module("", "ViT", "head in", {**tokens, "norm out": NORMED}, given={"norm in": X})
    without = module("", "ViT", "head in", tokens)
    a, b = before(NORMED[:, 1:].mean(1)), behind(vector)
    (cause,) = explain(a, b).causes
    assert (cause.name, cause.advice) == ("norm-place", "B: call norm before the pooling")
    (cause,) = explain(b, a).causes
    assert (cause.name, cause.advice) == ("norm-place", "B: call norm after the pooling")
    (cause,) = explain(b, without(pooled)).causes
    assert (cause.name, cause.advice) == ("missing-norm", "B: call norm after the pooling")
    unfit = module("", "ViT", "head in", {**tokens, "norm out": vector}, given={"norm in": 2 * pooled})
    assert not explain(a, unfit(vector)).causes


def test_dropout():
    kept = RANDOM.random(X.shape) > 0.3
    make = module("blocks.0.drop1", "Dropout", "out", {"in": X})
    assert names(make, X, np.where(kept, X / 0.7, 0))[0] == "dropout-active"
    assert "not in the catalogue" in names(make, X, np.where(kept, X / 0.7, 0.1 * X))[0]


@pytest.mark.parametrize(
    ("make", "ordinary", "other"),
    [
        (BLOCK, X + SCALED, X + SCALED * (1 + 0.1 * draw(D))),
        (PATCH, convolve(), convolve(kernel=KERNEL + 1e-3 * draw(D, 3, 7, 5))),
        (TOKENS, FIRST + TABLE, 1.01 * FIRST + TABLE),
        (POOL, NORMED[:, 0], NORMED[:, 0] + 1e-2 * draw(D)),
    ],
)
def test_what_is_not_in_the_catalogue_is_unknown(make, ordinary, other):
    assert "not in the catalogue" in names(make, ordinary, other)[0]


def test_gradients():
    given, arrived = torch.tensor(X, requires_grad=True), torch.tensor(BRANCH)

    def side(function):
        (passed,) = torch.autograd.grad(function(given), given, arrived)
        return GradientSegment("torch", "act", BRANCH, passed.numpy(), X)

    def why(a, b):
        verdict = explain_gradient(side(a), side(b))
        return verdict.causes[0].name if verdict.causes else verdict.unknown

    assert why(F.gelu, lambda x: 0 * x) == "detached"
    assert why(F.gelu, lambda x: F.gelu(x) / B) == "gradient-scale"
    assert why(F.gelu, lambda x: x + F.gelu(x)) == "gradient-residual"
    assert why(F.gelu, lambda x: F.gelu(x, approximate="tanh")) == "gradient-kind"
    assert why(F.gelu, F.gelu) is None
    assert "none of the known" in why(F.gelu, lambda x: F.gelu(x) ** 2)


def test_the_gradient_of_a_line_around_one_of_two_branches():
    inside = {"attn out": draw(B, T, D), "mlp out": BRANCH}
    passed = draw(B, T, D)
    a = GradientSegment("torch", "b", BRANCH, passed, X, inside=inside)
    b = replace(a, framework="jax", passed=passed - inside["attn out"])
    (cause,) = explain_gradient(a, b).causes
    assert (cause.name, cause.b) == (
        "gradient-residual", "gradient without that of the residual line around attn"
    )  # fmt: skip
    (cause,) = explain_gradient(a, replace(b, passed=passed - BRANCH)).causes
    assert cause.b == "gradient without that of the residual line"


def test_every_cause_is_in_the_table():
    folder = Path(__file__).parents[4] / "parity/verifier/diagnose"
    code = "".join(
        p.read_text()
        for p in (*folder.glob("catalogue/*.py"), folder / "backward.py", folder / "explain.py")
    )
    for slug in re.findall(r'Aspect\(\s*"\w+", "([a-z-]+)"', code):
        assert slug in CAUSES
    for slug in CAUSES:
        assert f'"{slug}"' in code
