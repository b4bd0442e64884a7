"""Every exact rewriting of a schema: both models compute the same logits, or a sentence says why not."""

from fnmatch import fnmatchcase
from itertools import permutations

import numpy as np
import pytest
import torch

from parity.porting.dialects.dialect import ANY, Dialect
from parity.porting.dialects.rewrites import (
    REWRITES,
    CannotHoldError,
    CannotRewriteError,
    ModelState,
    express,
)
from parity.porting.formats.base import Stored
from tests.support.dialect_proof import images_for, redraw
from tests.support.tiny import TINY, error, variant
from vit_config import ConfigError, ViTConfig
from vit_torch import ViT, from_arrays, to_arrays

pytestmark = pytest.mark.quick

GROUPED = {"num_heads": 6, "num_kv_heads": (6, 2, 3)}
NORMED = {"patch_input_norm": True, "patch_norm": True}

# what is rewritten -> (field, the schema before as changes to TINY, the only value allowed)
CASES = {
    "conv to linear_hwc": ("patch_embed", {}, "linear_hwc"),
    "conv to linear_chw": ("patch_embed", {}, "linear_chw"),
    "linear_hwc to conv": ("patch_embed", {"patch_embed": "linear_hwc"}, "conv"),
    "linear_chw to conv": ("patch_embed", {"patch_embed": "linear_chw"}, "conv"),
    "linear_hwc, normed": ("patch_embed", {"patch_embed": "linear_hwc", **NORMED}, "linear_chw"),
    "linear_chw, normed": ("patch_embed", {"patch_embed": "linear_chw", **NORMED}, "linear_hwc"),
    "the grid of the image size": ("pos_embed_grid", {"pos_embed_grid": TINY.grid}, None),
    "the grid of another image size": (
        "pos_embed_grid",
        {"pos_embed_grid": (3, 2), "dynamic_image_size": True},
        None,
    ),
    "gate": ("mlp", {"mlp": "swiglu", "act": "silu"}, "swiglu_packed"),
    "gate, bare": ("mlp", {"mlp": "swiglu", "mlp_bias": False, "mlp_norm": True}, "swiglu_packed"),
    "packed gate": ("mlp", {"mlp": "swiglu_packed"}, "swiglu"),
    "packed gate of branches": ("mlp", {"mlp": "swiglu_packed", "num_parallel": 2}, "swiglu"),
    "sincos1d": ("pos_embed", {"pos_embed": "sincos1d", "register_tokens": 2}, "learned"),
    "sincos1d, class row": (
        "pos_embed",
        {"pos_embed": "sincos1d", "register_tokens": 2, "pos_embed_prefix": "class"},
        "learned",
    ),
    "sincos2d": ("pos_embed", {"pos_embed": "sincos2d", "hidden_size": 40}, "learned"),
    "sincos2d_simple": (
        "pos_embed",
        {"pos_embed": "sincos2d_simple", "hidden_size": 40, "class_token": False, "pool": "mean"},
        "learned",
    ),
    "no positions": ("pos_embed", {"pos_embed": "none", "register_tokens": 1}, "learned"),
    **{
        f"rows of {before} to {after}": (
            "pos_embed_prefix",
            {"register_tokens": 2, "pos_embed_prefix": before},
            after,
        )
        for before, after in permutations(("auto", "class", "none", "all"), 2)
    },
    "row of a distillation token": (
        "pos_embed_prefix",
        {"distill_token": True, "register_tokens": 2},
        "none",
    ),
    "rows of registers alone": (
        "pos_embed_prefix",
        {"class_token": False, "register_tokens": 3, "pool": "mean"},
        "none",
    ),
    "no patch bias": ("patch_bias", {"patch_bias": False}, True),
    "no patch bias, linear": ("patch_bias", {"patch_bias": False, "patch_embed": "linear_hwc"}, True),
    "no q, k, v biases": ("qkv_bias", {"qkv_bias": False}, True),
    "no q, k, v biases, grouped": ("qkv_bias", {"qkv_bias": False, **GROUPED}, True),
    "no k bias": ("k_bias", {"k_bias": False}, True),
    "no k bias, grouped": ("k_bias", {"k_bias": False, **GROUPED}, True),
    "no output bias": ("attention_out_bias", {"attention_out_bias": False}, True),
    "no output bias, per head": (
        "attention_out_bias",
        {"attention_out_bias": False, "attention": "per_head"},
        True,
    ),
    "no MLP bias": ("mlp_bias", {"mlp_bias": False}, True),
    "no MLP bias, gated": ("mlp_bias", {"mlp_bias": False, "mlp": "swiglu"}, True),
    "no MLP bias, pooled by another": ("mlp_bias", {"mlp_bias": False, "pool": "map"}, True),
    "no head bias": ("head_bias", {"head_bias": False}, True),
    "no head biases": ("head_bias", {"head_bias": False, "distill_token": True}, True),
    "no scale": ("layer_scale", {}, 1.0),
    "no scale of branches": ("layer_scale", {"num_parallel": 2}, 1.0),
    "scale of attention": (
        "layer_scale_on",
        {"layer_scale": 0.1, "layer_scale_on": "attention"},
        "both",
    ),
    "norm of all": ("final_norm", {}, "post_pool"),
    "norm of one": ("final_norm", {"final_norm": "post_pool"}, "pre_pool"),
    "rmsnorm of one": ("final_norm", {"final_norm": "post_pool", "norm": "rmsnorm"}, "pre_pool"),
    "head of one": ("pool", {"register_tokens": 2}, "class_mean"),
    "head of the mean": ("pool", {"register_tokens": 2, "pool": "mean"}, "class_mean"),
    "grouped": ("num_kv_heads", GROUPED, None),
    "grouped, narrow": (
        "num_kv_heads",
        {"num_heads": 4, "num_kv_heads": 2, "attention_head_dim": 12, "k_bias": False, "qk_norm": True},
        None,
    ),
}
EXACT = ("pos_embed", "layer_scale", "layer_scale_on", "final_norm")
"""Those after which every sum is formed in the same order, on every processor: a bias is added in the
matrix product or after it (k_bias), which is rounded once or twice."""

# what is left out -> (field, the schema before, which tensors must be of which value)
REMOVALS = {
    "patch bias": ("patch_bias", {}, "patch_embed.proj.bias", 0.0),
    "q, k, v biases": ("qkv_bias", {}, "attn.qkv.bias", 0.0),
    "q and v biases": ("qkv_bias", {"k_bias": False}, "attn.?_bias", 0.0),
    "output bias": ("attention_out_bias", {}, "attn.proj.bias", 0.0),
    "MLP bias": ("mlp_bias", {"mlp": "swiglu"}, "mlp.*.bias", 0.0),
    "head bias": ("head_bias", {"distill_token": True}, "head*.bias", 0.0),
    "layer scale": ("layer_scale", {"layer_scale": 0.1}, "ls?.gamma", 1.0),
}


def state_of(cfg: ViTConfig, change=lambda name, array: array) -> ModelState:
    """A model without values that hide a fault."""
    arrays = to_arrays(redraw(ViT(cfg)))
    return ModelState(cfg, {name: Stored.of(change(name, array)) for name, array in arrays.items()})


def logits(state: ModelState, images: np.ndarray) -> np.ndarray:
    arrays = {name: stored.load().copy() for name, stored in state.arrays.items()}
    assert all(stored.shape == arrays[name].shape for name, stored in state.arrays.items())
    assert all(stored.dtype == np.float64 for stored in state.arrays.values())
    with torch.no_grad():
        return from_arrays(state.config, arrays)(torch.from_numpy(images)).logits.numpy()


def assert_same_function(before: ModelState, after: ModelState, *, exactly: bool) -> None:
    images = images_for(before.config)
    first, second = logits(before, images), logits(after, images)
    if exactly:
        np.testing.assert_array_equal(second, first)
    else:
        assert error(second, first) <= 1e-14


@pytest.mark.parametrize("case", CASES)
def test_rewrite(case):
    field, changes, value = CASES[case]
    before = state_of(TINY.replace(**changes))

    after = REWRITES[field](before, (value,))

    assert getattr(after.config, field) == value
    assert len(after.said) == 1
    assert_same_function(before, after, exactly=field in EXACT)


@pytest.mark.parametrize("case", REMOVALS)
def test_what_is_left_out_must_have_no_effect(case):
    field, changes, pattern, value = REMOVALS[case]
    cfg = TINY.replace(**changes)

    def neutral(name, array):
        return np.full_like(array, value) if fnmatchcase(name, f"*{pattern}") else array

    before = state_of(cfg, neutral)
    after = REWRITES[field](before, ANY)
    assert not getattr(after.config, field)
    assert len(after.arrays) < len(before.arrays)
    assert_same_function(before, after, exactly=False)

    fitting = [name for name in before.arrays if fnmatchcase(name, f"*{pattern}")]
    last = {**before.arrays, fitting[-1]: state_of(cfg).arrays[fitting[-1]]}
    with pytest.raises(CannotRewriteError, match=rf"^{fitting[-1]} is not"):
        REWRITES[field](ModelState(cfg, last), ANY)


@pytest.mark.parametrize("changes", [{}, {"num_heads": 6, "num_kv_heads": (6, 2, 3)}])
def test_a_bias_of_keys_is_left_out_if_it_is_zero(changes):
    cfg = TINY.replace(**changes)

    def without(name, array):
        if name.endswith("attn.qkv.bias"):
            kv = cfg.kv_heads[int(name.split(".")[1])] * cfg.head_dim
            array[cfg.attention_width : cfg.attention_width + kv] = 0
        return array

    before = state_of(cfg, without)
    after = REWRITES["k_bias"](before, (False,))
    assert after.config.k_bias is False
    assert_same_function(before, after, exactly=False)

    with pytest.raises(CannotRewriteError, match=r"keys' part of blocks\.0\.attn\.qkv\.bias is not"):
        REWRITES["k_bias"](state_of(cfg), (False,))


@pytest.mark.parametrize(("pool", "other"), [("class", slice(30, None)), ("mean", slice(30))])
def test_a_head_on_two_vectors_that_weighs_one(pool, other):
    cfg = TINY.replace(pool="class_mean")

    def one_sided(name, array):
        if name == "head.weight":
            array[:, other] = 0
        return array

    before = state_of(cfg, one_sided)
    after = REWRITES["pool"](before, ("class", "mean"))
    assert after.config.pool == pool
    assert_same_function(before, after, exactly=False)
    again = REWRITES["pool"](after, ("class_mean",))
    other_one = {"class": "mean", "mean": "class"}[pool]
    assert [each.split()[-1] for each in again.said] == [other_one, other_one]

    with pytest.raises(CannotRewriteError, match="its head sees both"):
        REWRITES["pool"](state_of(cfg), ("class", "mean"))


REFUSED = {
    "a normalised patch": ("patch_embed", "linear_hwc", ("conv",), "normalised before the projection"),
    "no gate": ("mlp", "plain", ("swiglu",), "^$"),
    "a learned table": ("pos_embed", "plain", ("sincos2d",), "^$"),
    "rows of a fixed table": ("pos_embed_prefix", "sincos1d", ("none",), "^$"),
    "a class row without a class": ("pos_embed_prefix", "registers_only", ("class",), "^$"),
    "no projection to have a bias": ("attention_out_bias", "per_head_bare", (True,), "no projection"),
    "a parallel block's biases": ("qkv_bias", "parallel_bare", (True,), "^$"),
    "a parallel block's output bias": ("attention_out_bias", "parallel_bare", (True,), "^$"),
    "a bias of k without others": ("k_bias", "no_biases", (False,), "q and v alone have biases"),
    "a norm of means": ("final_norm", "mean_post_norm", ("pre_pool",), "pool = mean"),
    "no final norm": ("final_norm", "no_final_norm", ("pre_pool",), "^$"),
    "a head on two tokens": ("pool", "distilled", ("class_mean",), "^$"),
    "a tanh layer": ("head_hidden", "tanh_before_head", (None,), "--num-classes 0 takes it off"),
    "a mean of all": ("pool", "mean_of_all", ("class_mean",), "^$"),
    "no head": ("pool", "no_head", ("class_mean",), "^$"),
    "no head to tell what is pooled": ("pool", "no_head", ("mean",), "--override pool=mean$"),
    "two pooled tokens": ("final_norm", "distilled", ("post_pool",), "pool = class"),
    "the norms of a res_post block": ("layer_scale", "res_post", (None,), "^$"),
    "fewer heads of keys": ("num_kv_heads", "plain", (1,), "^$"),
    "a scale of one branch": ("layer_scale_on", "layer_scale", ("attention",), "^$"),
    "a table of a fixed size": ("pos_embed_grid", "plain", ((9, 9),), "^$"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_rewritten_is_refused(case):
    field, name, allowed, why = REFUSED[case]

    with pytest.raises(CannotRewriteError, match=why):
        REWRITES[field](state_of(variant(name)), allowed)


def test_every_fold_is_covered():
    covered = {case[0] for case in (*CASES.values(), *REMOVALS.values(), *REFUSED.values())}

    assert covered == REWRITES.keys()


def test_a_model_is_rewritten_until_the_dialect_can_say_it():
    dialect = Dialect("d", "D", "d", ((),), (), can={"act": ("gelu", "silu")})
    before = state_of(
        TINY.replace(
            patch_embed="linear_chw",
            patch_bias=False,
            pos_embed="sincos1d",
            register_tokens=0,
            num_kv_heads=1,
            k_bias=False,
            mlp_bias=False,
            final_norm="post_pool",
            act="silu",
        )
    )

    after = express(before, dialect)

    assert after.config == TINY.replace(act="silu")
    assert len(after.said) == 7
    assert not after.rounds
    assert_same_function(before, after, exactly=False)


def test_numbers_that_say_what_goes_without_saying_are_not_asked_about():
    dialect = Dialect("d", "D", "d", ((),), ())
    cfg = TINY.replace(num_kv_heads=TINY.num_heads, attention_head_dim=6)
    assert express(state_of(cfg), dialect).config == TINY


def test_everything_in_the_way_is_named():
    dialect = Dialect("d", "D", "d", ((),), ())

    with pytest.raises(CannotHoldError) as info:
        express(state_of(TINY.replace(act="silu", pool="mean", final_norm="post_pool")), dialect)
    assert [*info.value.reasons] == ["act", "final_norm", "pool"]
    assert CannotHoldError("x").reasons == {}

    assert str(info.value) == (
        "d cannot hold this model: act = silu (d has gelu); final_norm = post_pool (d has pre_pool):"
        " pool = mean of normalised tokens is not that pool, normalised; pool = mean (d has class)"
    )


def test_fields_that_ask_for_each_others_opposite_do_not_loop():
    wants = {"head_bias": lambda cfg: (not cfg.mlp_bias,), "mlp_bias": lambda cfg: (cfg.head_bias,)}
    dialect = Dialect("d", "D", "d", ((),), (), can=wants)
    cfg = TINY.replace(head_bias=False, mlp_bias=False)

    with pytest.raises(ConfigError, match="cannot hold this model"):
        express(state_of(cfg), dialect)


def test_a_scale_that_is_no_number_the_dialect_has_does_not_loop():
    dialect = Dialect("d", "D", "d", ((),), (), can={"layer_scale": (1e-5,)})

    with pytest.raises(ConfigError, match=r"layer_scale = none \(d has 1e-05\)"):
        express(state_of(TINY), dialect)
