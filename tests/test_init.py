"""Initial values: the recipes are those of timm and of torch, and both twins draw by them."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from peers import import_timm
from tiny import TINY

import vit_jax
import vit_jax.init
import vit_torch
import vit_torch.init
from parity.dialects.timm import read_state
from vit_config import PRESETS
from vit_config.init import ZERO, Draw, initial_draws
from vit_config.rope import Rope
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

pytestmark = pytest.mark.slow

timm = import_timm()
ViT, Distilled = timm.models.VisionTransformer, timm.models.VisionTransformerDistilled
Eva, Beit = timm.models.Eva, timm.models.Beit
Layers, Blocks = timm.layers, timm.models.vision_transformer

# wide enough for statistics; every width is another number
WIDE = TINY.replace(hidden_size=96, depth=2, num_heads=4, mlp_dim=144, num_classes=70)
SHARED = {
    "img_size": (21, 15), "patch_size": (7, 5), "embed_dim": 96, "depth": 2, "num_heads": 4,
    "mlp_ratio": 1.5, "num_classes": 70,
}  # fmt: skip

SCALED = {"init_values": 0.3}
POOLED = {"global_pool": "map", "class_token": False, "reg_tokens": 2, **SCALED}
OUR_POOLED = {"pool": "map", "class_token": False, "register_tokens": 2, "layer_scale": 0.3}
PARALLEL = {"block_fn": Blocks.ParallelScalingBlock, "qkv_bias": False, **SCALED}
OUR_PARALLEL = {"block": "parallel", "qkv_bias": False, "layer_scale": 0.3}
DIFFERENTIAL = {**PARALLEL, "block_fn": Blocks.DiffParallelScalingBlock, "qkv_bias": True}
OUR_DIFFERENTIAL = {**OUR_PARALLEL, "attention": "differential", "qkv_bias": True}
RES_POST = {"block_fn": Blocks.ResPostBlock, "mlp_layer": Layers.SwiGLU, **SCALED}
OUR_RES_POST = {"block": "res_post", "mlp": "swiglu", "layer_scale": 0.3}
PACKED = {"mlp_layer": Layers.SwiGLUPacked, "mlp_ratio": 3.0}
EVA = {"init": "eva", "k_bias": False}
MIXED = {"use_rot_pos_emb": True, "rope_type": "mixed", "rope_temperature": 7.0}

# timm's class, its arguments beside those of SHARED, and our fields beside those of WIDE
TIMM = {
    "plain": (ViT, {"reg_tokens": 2}, {"register_tokens": 2}),
    "no biases": (
        ViT,
        {"qkv_bias": False, "proj_bias": False, "mlp_layer": Layers.SwiGLU},
        {"qkv_bias": False, "attention_out_bias": False, "mlp_bias": False, "mlp": "swiglu"},
    ),
    "swiglu": (ViT, {"mlp_layer": Layers.SwiGLU}, {"mlp": "swiglu"}),
    "swiglu packed": (ViT, PACKED, {"mlp": "swiglu_packed"}),
    "packed, map pool": (
        ViT,
        {**PACKED, **POOLED},
        {"mlp": "swiglu_packed", "pool_mlp_dim": 288, **OUR_POOLED},
    ),
    "norms of branches": (
        ViT,
        {"scale_attn_norm": True, "scale_mlp_norm": True, "qk_norm": True, "pre_norm": True},
        {
            "attention_norm": True, "mlp_norm": True, "qk_norm": True, "pre_norm": True,
            "patch_bias": False,
        },
    ),
    "distilled": (Distilled, SCALED, {"distill_token": True, "layer_scale": 0.3}),
    "res_post": (ViT, RES_POST, OUR_RES_POST),
    "parallel": (ViT, PARALLEL, OUR_PARALLEL),
    "branches": (
        ViT,
        {"block_fn": Blocks.ParallelThingsBlock, **SCALED},
        {"num_parallel": 2, "layer_scale": 0.3},
    ),
    "differential": (ViT, {"attn_layer": "diff"}, {"attention": "differential"}),
    "differential parallel": (ViT, DIFFERENTIAL, OUR_DIFFERENTIAL),
    **{
        f"{recipe}, {name}": (kind, {"weight_init": recipe, **theirs}, {"init": recipe, **ours})
        for recipe in ("jax", "jax_nlhb", "moco")
        for name, kind, theirs, ours in (
            ("map pool", ViT, POOLED, OUR_POOLED),
            ("parallel", ViT, PARALLEL, OUR_PARALLEL),
            ("res_post, swiglu", ViT, RES_POST, OUR_RES_POST),
            ("packed", ViT, PACKED, {"mlp": "swiglu_packed"}),
            ("distilled", Distilled, {}, {"distill_token": True}),
            ("differential", ViT, {"attn_layer": "diff"}, {"attention": "differential"}),
        )
    },
    "eva": (
        Eva,
        {"num_reg_tokens": 2, **SCALED},
        {"register_tokens": 2, "pool": "mean", "final_norm": "post_pool", "layer_scale": 0.3, **EVA},
    ),
    "eva, packed, q and k and v apart": (
        Eva,
        {"global_pool": "token", "swiglu_mlp": True, "qkv_fused": False, **MIXED},
        {"mlp": "swiglu_packed", "rope": Rope(kind="mixed", theta=7.0), **EVA},
    ),
    "eva, swiglu, res_post, map pool": (
        Eva,
        {"global_pool": "map", "swiglu_mlp": True, "scale_mlp": True, "use_post_norm": True, **SCALED},
        {
            "pool": "map", "pool_prefix": True, "mlp": "swiglu", "mlp_norm": True,
            "block": "res_post", **EVA,
        },
    ),
    "beit": (
        Beit,
        {"use_rel_pos_bias": True, "swiglu_mlp": True, **SCALED},
        {
            "rel_pos_bias": True, "pool": "mean", "final_norm": "post_pool", "mlp": "swiglu",
            "layer_scale": 0.3, **EVA,
        },
    ),
}  # fmt: skip

PER_HEAD = {"attention": "per_head"}
OWN = {
    **{
        recipe: {"init": recipe, "register_tokens": 2, "layer_scale": 0.3}
        for recipe in ("timm_truncated", "torch", "torch_mha", "torch_uniform_tokens", "xavier_normal")
    },
    **{
        f"{recipe}, per head": {"init": recipe, **PER_HEAD}
        for recipe in ("jax", "moco", "torch", "torch_mha", "xavier_normal")
    },
    "moco, linear patches": {"init": "moco", "patch_embed": "linear_hwc", "patch_norm": True},
    "jax, grouped": {"init": "jax", "num_kv_heads": 2, "k_bias": False},
    **{
        f"{recipe}, tanh before the head": {"init": recipe, "head_hidden": 60, "head_bias": False}
        for recipe in ("timm", "jax", "jax_nlhb", "moco", "eva", "torch")
    },
    "jax, wide heads": {"init": "jax", "num_heads": 5, "attention_head_dim": 28},
    "eva, parallel": {"init": "eva", "block": "parallel"},
    "timm_truncated, mixed": {"init": "timm_truncated", "rope": Rope(kind="mixed"), "mlp": "swiglu"},
}
SCHEMAS = {name: WIDE.replace(**ours) for name, ours in OWN.items()}
SCHEMAS |= {name: WIDE.replace(**ours) for name, (_, _, ours) in TIMM.items()}
SEEDS = range(3)

RARE = 5.7e-7
"""The probability of five standard errors, the limit of every statistic here."""
REACH = math.sqrt(math.log(2 / RARE) / 2)
"""What sqrt(n) times Kolmogorov's statistic exceeds so rarely, at most, for every n (Massart 1990)."""


def describe(draw):
    """Mean, standard deviation, kurtosis, and the ends of a distribution."""
    if draw.kind == "uniform":
        return (draw.a + draw.b) / 2, (draw.b - draw.a) / math.sqrt(12), 1.8, draw.a, draw.b
    if draw.kind == "normal":
        return draw.a, draw.b, 3.0, -math.inf, math.inf
    cut = draw.bound / draw.b
    inside = math.erf(cut / math.sqrt(2))
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    square = 1 - 2 * cut * density / inside
    fourth = 3 * square - 2 * cut**3 * density / inside
    spread = draw.b * math.sqrt(square)
    return draw.a, spread, fourth / square**2, draw.a - draw.bound, draw.a + draw.bound


def below(x, draw):
    """The probability of a value below `x`."""
    if draw.kind == "uniform":
        return (x - draw.a) / (draw.b - draw.a)
    share = torch.special.ndtr(torch.from_numpy((x - draw.a) / draw.b)).numpy()
    if draw.kind == "normal":
        return share
    outside = math.erfc(draw.bound / draw.b / math.sqrt(2)) / 2
    return (share - outside) / (1 - 2 * outside)


def kolmogorov(probabilities):
    """sqrt(n) times the largest distance of n values from uniform ones."""
    p, n = np.sort(probabilities), len(probabilities)
    return math.sqrt(n) * max(np.max(np.arange(1, n + 1) / n - p), np.max(p - np.arange(n) / n))


def misfit(values, draw):
    """What shows that values are not from a distribution; empty if nothing does."""
    if draw.kind == "rotary":
        return rotary_misfit(values, draw.a)
    x = np.asarray(values, np.float64).ravel()
    if draw.kind == "constant":
        return "" if np.all(x == np.float32(draw.a)) else f"not {draw.a}"
    mean, spread, kurtosis, low, high = describe(draw)
    n, slack = len(x), 1e-6 * spread
    if x.min() < low - slack or x.max() > high + slack:
        return f"in [{x.min()}, {x.max()}]"
    if draw.kind == "normal" and n * math.erfc(np.abs(x - mean).max() / spread / math.sqrt(2)) < RARE:
        return f"reaches {np.abs(x).max()}"
    p = below(x, draw)
    if n * max(p.min(), 1 - p.max()) > -math.log(RARE):
        return f"only in [{x.min()}, {x.max()}]"
    if abs(x.mean() - mean) > 5 * spread / math.sqrt(n):
        return f"mean {x.mean()}"
    if n > 1000 and abs(np.mean((x - mean) ** 2) / spread**2 - 1) > 5 * math.sqrt((kurtosis - 1) / n):
        return f"deviation {x.std()}, not {spread}"
    return f"Kolmogorov's statistic is {kolmogorov(p)}" if kolmogorov(p) > REACH else ""


def rotary_misfit(freqs, base):
    """Each pair of an axis' frequency and the other's: of fixed length, turned by one angle per head."""
    freqs = np.asarray(freqs, np.float64)
    along = freqs[0] + 1j * freqs[1]  # (..., h, d / 2)
    first, second = np.split(along, 2, axis=-1)
    length = base ** (-np.arange(first.shape[-1]) / first.shape[-1])
    if np.abs(second - 1j * first).max() > 1e-6:
        return "the second axis is not a quarter turn from the first"
    if np.abs(first / first[..., :1] - length).max() > 1e-5 or np.abs(abs(first) - length).max() > 1e-6:
        return "not the frequencies of fixed positions"
    turns = (np.angle(first[..., 0]) / (2 * np.pi)).ravel() % 1
    return "angles are not uniform" if kolmogorov(turns) > REACH else ""


def draws_of(cfg):
    parts = leaves(abstract_model(cfg))
    kinds = {leaf.name: leaf.kind for leaf in parts}
    return initial_draws(cfg, kinds, {leaf.name: leaf.shape for leaf in parts})


def misfits(cfg, models):
    """What is wrong with the parameters of several fresh models, by name or by distribution."""
    draws, found, pools = draws_of(cfg), {}, {}
    assert all(arrays.keys() == draws.keys() for arrays in models)
    for name, shares in draws.items():
        parts = zip(*(np.split(arrays[name], len(shares)) for arrays in models), strict=True)
        for draw, values in zip(shares, parts, strict=True):
            axis = 1 if draw.kind == "rotary" else 0
            pooled = np.concatenate(values, axis)
            found[name, draw] = misfit(pooled, draw)
            pools.setdefault(draw, []).append(pooled if axis else pooled.ravel())
    for draw, values in pools.items():
        found["all of this distribution", draw] = misfit(np.concatenate(values, -1), draw)
    return {key: problem for key, problem in found.items() if problem}


@pytest.mark.parametrize("case", TIMM)
def test_the_recipe_is_timms(case):
    kind, theirs, _ = TIMM[case]
    cfg, models = SCHEMAS[case], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        state = kind(**{**SHARED, **theirs}).state_dict()
        models.append({name: x.numpy() for name, x in read_state(state, join=torch.cat).items()})
    assert misfits(cfg, models) == {}


@pytest.mark.parametrize("case", SCHEMAS)
def test_torch_draws_by_the_recipe(case):
    models = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        models.append(vit_torch.to_arrays(vit_torch.ViT(SCHEMAS[case])))
    assert misfits(SCHEMAS[case], models) == {}


@pytest.mark.slow
@pytest.mark.parametrize("case", SCHEMAS)
def test_jax_draws_by_the_recipe(case):
    arrays = vit_jax.to_arrays(vit_jax.ViT(SCHEMAS[case], rngs=nnx.Rngs(0)))
    assert misfits(SCHEMAS[case], [arrays]) == {}


def test_the_tanh_layer_before_the_head_is_a_layer_like_others():
    """Except that Google's ViT draws it LeCun-normal, in JAX."""
    for recipe in ("timm", "moco", "eva", "torch", "xavier_normal"):
        draws = draws_of(WIDE.replace(init=recipe, head_hidden=WIDE.mlp_dim))
        assert draws["pre_logits.weight"] == draws["blocks.0.mlp.fc1.weight"]
        assert draws["pre_logits.bias"] == draws["blocks.0.mlp.fc1.bias"]
    draws = draws_of(WIDE.replace(init="jax", head_hidden=70))
    _, spread, _, low, high = describe(draws["pre_logits.weight"][0])
    assert spread == pytest.approx(96**-0.5)
    assert high == -low < 2.3 * spread
    assert draws["pre_logits.bias"] == draws["head.weight"] == draws["head.bias"] == ZERO


def test_every_recipe_is_tested():
    recipes = type(WIDE).model_fields["init"].annotation.__args__
    assert {cfg.init for cfg in SCHEMAS.values()} == set(recipes)


SPREAD = 0.02 * math.sqrt(1 - 2 * 2 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (Draw("truncated_normal", 0.0, 0.02, bound=0.04), Draw("normal", 0.0, 0.02)),
        (Draw("normal", 0.0, 0.02), Draw("truncated_normal", 0.0, 0.02, bound=0.04)),
        (Draw("normal", 0.0, SPREAD), Draw("truncated_normal", 0.0, 0.02, bound=0.04)),
        (Draw("truncated_normal", 0.0, 0.02, bound=0.04), Draw("normal", 0.0, SPREAD)),
        (Draw("uniform", -1.0, 1.0), Draw("normal", 0.0, 3**-0.5)),
        (Draw("uniform", -1.0, 1.0), Draw("uniform", -1.05, 1.05)),
        (Draw("uniform", -1.05, 1.05), Draw("uniform", -1.0, 1.0)),
        (Draw("uniform", 0.0, 1.0), Draw("uniform", -1.0, 1.0)),
        (Draw("normal", 0.0, 1e-6), Draw("constant", 0.0)),
        (Draw("constant", 0.0), Draw("normal", 0.0, 1e-6)),
        (Draw("normal", 0.002, 0.02), Draw("normal", 0.0, 0.02)),
    ],
)
def test_a_wrong_distribution_is_noticed(drawn, expected):
    torch.manual_seed(0)
    values = vit_torch.init.sample(drawn, torch.empty(96, 288)).numpy()
    assert misfit(values, drawn) == ""
    assert misfit(values, expected) != ""


def test_truncation_as_jax_means_it_is_narrower():
    _, spread, kurtosis, _, _ = describe(Draw("truncated_normal", 0.0, 0.02, bound=0.04))
    assert spread == pytest.approx(SPREAD) == pytest.approx(0.0176, abs=1e-5)
    assert kurtosis == pytest.approx(2.366, abs=1e-3)


def test_no_weight_is_an_outlier():
    """A normal of 0.02 that is cut at +-2 by an inverse error function is -2 for one value in 2^23."""
    (draw,) = draws_of(WIDE)["blocks.0.mlp.fc1.weight"]
    assert (draw,) == draws_of(WIDE.replace(init="eva"))["blocks.0.mlp.fc1.weight"]
    # the key draws the lowest of all uniform values
    ours = vit_jax.init.sample(draw, jax.random.key(4), (1024, 1024), jnp.float32)
    torch.manual_seed(4)
    theirs = vit_torch.init.sample(draw, torch.empty(1024, 1024))
    assert 0.1 < float(jnp.abs(ours).max()) < 0.12
    assert 0.08 < float(theirs.abs().max()) < 0.12


def test_small_parameters_are_timms():
    """Many of those that a model has too few values of."""
    torch.manual_seed(0)
    (latent,) = draws_of(SCHEMAS["eva, swiglu, res_post, map pool"])["attn_pool.latent"]
    values = [Layers.AttentionPoolLatent(96, num_heads=4).latent.detach() for _ in range(99)]
    assert misfit(torch.stack(values), latent) == ""
    assert misfit(torch.stack(values), Draw("normal", 0.0, latent.b)) != ""
    lambdas = [Layers.DiffAttention(96, num_heads=4) for _ in range(99)]
    for name, (draw,) in draws_of(SCHEMAS["differential"]).items():
        if "lambda" in name:
            values = [getattr(layer, name.split(".")[-1]).detach() for layer in lambdas]
            assert misfit(torch.stack(values), draw) == "", name


def test_the_last_projection_of_each_branch_starts_smaller():
    branches = {"blocks.1.attns.1.attn.proj.weight", "blocks.1.ffns.0.mlp.fc2.weight"}
    one_branch = {"blocks.1.attn_out_proj.weight", "blocks.1.mlp_out_proj.weight"}
    joint = {"blocks.1.out_proj.weight"}
    for names, fields in (
        (branches, {"num_parallel": 2}),
        (one_branch, {"block": "parallel"}),
        (joint, {"block": "parallel", "attention": "differential"}),
    ):
        draws = draws_of(WIDE.replace(init="eva", **fields))
        smaller = {name for name, (draw,) in draws.items() if draw.b == pytest.approx(0.02 / 2)}
        assert names <= smaller
        assert all(name.startswith("blocks.1.") for name in smaller)


def test_rotary_frequencies_start_as_timms():
    shape = (2, 40, 50, 12)  # 40 blocks, 50 heads of width 24
    torch.manual_seed(0)
    freqs = Layers.pos_embed_sincos.init_random_2d_freqs(24, 40, 50, temperature=7.0)
    draw = Draw("rotary", 7.0)
    ours = vit_jax.init.sample(draw, jax.random.key(0), shape, jnp.float32)
    theirs = vit_torch.init.sample(draw, torch.empty(shape))
    for values in (freqs, ours, theirs):
        assert values.shape == shape
        assert rotary_misfit(np.asarray(values), 7.0) == ""
    assert rotary_misfit(freqs.numpy(), 8.0) != ""
    assert rotary_misfit(freqs.numpy()[::-1], 7.0) != ""
    assert rotary_misfit(freqs.numpy()[:, :, :10].clip(0) + 1e-3, 7.0) != ""
    unturned = Layers.pos_embed_sincos.init_random_2d_freqs(24, 40, 50, temperature=7.0, rotate=False)
    assert rotary_misfit(unturned.numpy(), 7.0) == "angles are not uniform"


def test_presets_name_the_recipe_of_their_source():
    draws = draws_of(PRESETS["mnist_exercise"])
    assert draws["cls_token"] == (Draw("uniform", 0.0, 1.0),)
    assert draws["blocks.0.attn.qkv_weight"] == (Draw("uniform", -0.5, 0.5),)  # 1 / sqrt(4)
    draws = draws_of(PRESETS["vit_paper"])
    assert draws["pos_embed"] == (Draw("normal", 0.0, 1.0),)
    assert draws["blocks.3.attn.qkv.bias"] == (Draw("constant", 0.0),)
    # Xavier over the packed matrix, 768 in and 2304 out, as torch.nn.MultiheadAttention draws it
    assert draws["blocks.3.attn.qkv.weight"][0].b == pytest.approx(math.sqrt(6 / (768 + 2304)))
    draws = draws_of(PRESETS["vit_from_scratch_large"])
    assert draws["cls_token"][0].b == pytest.approx(0.03125)
    assert draws["pos_embed"][0].b == pytest.approx(0.00314, rel=1e-2)
    assert draws["blocks.0.mlp.fc1.bias"] == (Draw("uniform", -1 / 32, 1 / 32),)


def _layers(attention):
    """Fresh layers of torch's by the name of ours."""
    values = {}
    for name, make in {
        "patch_embed.proj": partial(torch.nn.Conv2d, 3, 96, (7, 5)),
        "blocks.0.mlp.fc2": partial(torch.nn.Linear, 144, 96),
        "head": partial(torch.nn.Linear, 96, 70),
    }.items():
        values |= {f"{name}.{leaf}": value for leaf, value in make().named_parameters()}
    if attention:
        module = torch.nn.MultiheadAttention(96, 4)
        values |= {
            "blocks.0.attn.qkv.weight": module.in_proj_weight,
            "blocks.0.attn.qkv.bias": module.in_proj_bias,
            "blocks.0.attn.proj.weight": module.out_proj.weight,
            "blocks.0.attn.proj.bias": module.out_proj.bias,
        }
    return values


@pytest.mark.parametrize("recipe", ["torch", "torch_mha"])
def test_torch_recipes_are_what_torch_layers_do(recipe):
    draws = draws_of(WIDE.replace(init=recipe))
    torch.manual_seed(0)
    drawn = [_layers(attention=recipe == "torch_mha") for _ in SEEDS]
    for name in drawn[0]:
        (draw,) = draws[name]
        values = np.concatenate([layers[name].detach().numpy() for layers in drawn])
        assert misfit(values, draw) == "", name


def test_xavier_normal_is_torchs():
    torch.manual_seed(0)
    for name, shares in draws_of(WIDE.replace(init="xavier_normal")).items():
        shape = abstract_model(WIDE).get_parameter(name).shape
        if len(shape) > 1:
            values = [torch.nn.init.xavier_normal_(torch.empty(shape)).numpy() for _ in SEEDS]
            assert misfit(np.concatenate(values), shares[0]) == "", name


def test_seeds_decide_everything():
    first, again, other = (
        vit_jax.to_arrays(vit_jax.ViT(WIDE, rngs=nnx.Rngs(seed))) for seed in (1, 1, 2)
    )
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], other["blocks.0.mlp.fc1.weight"])
    assert not np.array_equal(first["blocks.0.mlp.fc1.weight"], first["blocks.1.mlp.fc1.weight"])
