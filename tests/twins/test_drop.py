"""What drops in training: the right share, scale and shape, in both twins, and the same function."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax.drop
import vit_jax.rope
import vit_torch
import vit_torch.drop
import vit_torch.rope
from tests.support.peers import EXACT, call_jax, nchw, random_images, redrawn, run_both, run_torch
from tests.support.tiny import TINY, VARIANTS, error, variant
from vit_jax.functional import get_params, make_merge
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).standard_normal((400, 7, 11)).astype(np.float32)
PREFIX = 3
KINDS = {"Dropout": (0.5,), "DropPath": (0.5,), "PatchDropout": (0.5, PREFIX)}


def _both(kind, *options, x=X, seed=3, training=True):
    """What each twin's layer makes of `x`, by the framework's name."""
    rngs = nnx.Rngs(dropout=seed) if training else None
    ours = getattr(vit_jax.drop, kind)(*options)(jnp.asarray(x), rngs=rngs)
    torch.manual_seed(seed)
    theirs = getattr(vit_torch.drop, kind)(*options).train(training)(torch.from_numpy(x))
    to_numpy = {"jax": ours, "torch": theirs}
    return {
        twin: [None if part is None else np.asarray(part) for part in result]
        if isinstance(result, tuple)
        else [np.asarray(result)]
        for twin, result in to_numpy.items()
    }


def _binomial(share, expected, draws):
    """Whether a share is within five standard errors of what is expected."""
    return np.all(abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / draws))


@pytest.mark.parametrize("twin", ["jax", "torch"])
@pytest.mark.parametrize("kind", ["Dropout", "DropPath"])
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_share_and_scale(kind, rate, twin):
    (y,) = _both(kind, rate)[twin]
    keep = y != 0
    assert _binomial(keep.mean(), 1 - rate, len(X) if kind == "DropPath" else X.size)
    np.testing.assert_allclose(y[keep], (X / (1 - rate))[keep], rtol=1e-6)
    images = keep.reshape(len(X), -1)
    if kind == "DropPath":
        assert np.all(images.all(axis=1) | ~images.any(axis=1))
        images = images[:, :1]
    # neighbours, along the images and inside one, are kept together as often as independent ones
    pairs = [images[1::2] & images[::2], images[:, 1::2] & images[:, 0:-1:2]]
    for together in pairs[: 1 if kind == "DropPath" else 2]:
        assert _binomial(together.mean(), (1 - rate) ** 2, together.size)


def _numbered(images, patches):
    """Tokens whose first value is their place and whose second is their image's."""
    places = np.broadcast_to(np.arange(PREFIX + patches)[None], (images, PREFIX + patches))
    owners = np.broadcast_to(np.arange(images)[:, None], places.shape)
    return np.stack([places, owners, -places], axis=-1).astype(np.float32)


@pytest.mark.parametrize("twin", ["jax", "torch"])
@pytest.mark.parametrize(("patches", "rate"), [(10, 0.4), (7, 0.25)])
def test_every_patch_is_as_likely_kept_as_any(patches, rate, twin):
    x = _numbered(3000, patches)
    y, kept_patches = _both("PatchDropout", rate, PREFIX, x=x)[twin]
    B, n = kept_patches.shape
    assert n == int(patches * (1 - rate))
    assert y.shape == (B, PREFIX + n, 3)
    np.testing.assert_array_equal(y[:, :PREFIX], x[:, :PREFIX])
    np.testing.assert_array_equal(
        y[:, PREFIX:], np.take_along_axis(x, PREFIX + kept_patches[:, :, None], axis=1)
    )
    assert np.all(np.diff(np.sort(np.asarray(kept_patches), axis=1)) > 0)
    assert kept_patches.min() == 0
    assert kept_patches.max() == patches - 1
    places = kept_patches[:, :, None] == np.arange(patches)  # (B, n, patches)
    assert _binomial(places.mean(axis=0), 1 / patches, B)  # each place of the output, each patch
    here = places.any(axis=1)
    assert _binomial(here.mean(axis=0), n / patches, B)
    both = (here[:, :, None] & here[:, None]).mean(axis=0)[~np.eye(patches, dtype=bool)]
    assert _binomial(both, n * (n - 1) / (patches * (patches - 1)), B)
    neighbours = (here[1::2, :] & here[::2, :]).mean(axis=0)  # of one image and the next
    assert _binomial(neighbours, (n / patches) ** 2, B // 2)


@pytest.mark.parametrize(
    ("patches", "rate", "number"),
    [(1, 0.99, 1), (3, 0.9, 1), (5, 0.5, 2), (5, 0.81, 1), (10, 0.1, 9), (196, 0.25, 147), (9, 1e-9, 8)],
)
def test_the_number_of_kept_patches_is_rounded_down_and_never_none(patches, rate, number):
    for y, kept_patches in _both("PatchDropout", rate, PREFIX, x=_numbered(2, patches)).values():
        assert kept_patches.shape == (2, number)
        assert y.shape == (2, PREFIX + number, 3)


def test_patches_without_a_prefix():
    x = _numbered(5, 4)
    for y, kept_patches in _both("PatchDropout", 0.5, 0, x=x).values():
        np.testing.assert_array_equal(y, np.take_along_axis(x, kept_patches[:, :, None], axis=1))


def test_angles_follow_the_patches():
    stream = np.random.default_rng(0)
    angles = stream.standard_normal((5, 9, 4))  # (h, N, d/2)
    kept_patches = np.argsort(stream.random((2, 9)), axis=1)[:, :6]
    rotations = [
        vit_jax.rope.make_rotation(jnp.asarray(angles, jnp.float32), jnp.asarray(kept_patches)),
        vit_torch.rope.make_rotation(torch.from_numpy(angles), torch.from_numpy(kept_patches)),
    ]
    for rotation in rotations:
        for image, head, place in np.ndindex(2, 5, 6):
            angle = angles[head, kept_patches[image, place]]
            np.testing.assert_allclose(rotation.sin[image, place, head], np.sin(angle), rtol=1e-5)
            np.testing.assert_allclose(rotation.cos[image, place, head], np.cos(angle), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_rate_zero_and_evaluation_change_nothing(kind):
    rate, *rest = KINDS[kind]
    for results in (_both(kind, 0.0, *rest), _both(kind, rate, *rest, training=False)):
        for y, *kept_patches in results.values():
            np.testing.assert_array_equal(y, X)
            assert kept_patches in ([], [None])


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_draws_anew_and_one_key_draws_once(kind):
    ours = getattr(vit_jax.drop, kind)(*KINDS[kind])
    theirs = getattr(vit_torch.drop, kind)(*KINDS[kind]).train()

    def first(result):
        return np.asarray(result[0] if isinstance(result, tuple) else result)

    rngs = nnx.Rngs(dropout=3)
    a, b = (first(ours(jnp.asarray(X), rngs=rngs)) for _ in range(2))
    again, other = (first(ours(jnp.asarray(X), rngs=nnx.Rngs(dropout=seed))) for seed in (3, 4))
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, other)
    torch.manual_seed(3)
    a, b = (first(theirs(torch.from_numpy(X))) for _ in range(2))
    torch.manual_seed(3)
    assert np.array_equal(a, first(theirs(torch.from_numpy(X))))
    assert not np.array_equal(a, b)


RATES = {name: rate for name, rate in VARIANTS["dropout"].items() if name.startswith("dropout")}
RATES["stochastic_depth"] = 0.4  # so low that some image keeps each branch
NOWHERE = {  # what a schema has no place for
    "rel_pos_bias": ["dropout_patch"],
    "parallel": ["dropout_attention_out", "dropout_mlp_outer"],
    "differential_parallel": ["dropout_attention_out", "dropout_mlp_outer"],
}
CASES = {
    name: variant(name).replace(**{**RATES, **dict.fromkeys(NOWHERE.get(name, ()), 0.0), "depth": 2})
    for name in (
        "dropout",
        "rope_axial",
        "rope_centered",
        "distilled",
        "parallel",
        "branches",
        "res_post",
        "differential_parallel",
        "map",
        "swiglu",
        "per_head",
        "rel_pos_bias",
    )
}
QUICK_AND_SLOW = [
    pytest.param(name, marks=[] if name in ("dropout", "rope_axial") else pytest.mark.exhaustive)
    for name in CASES
]


class Stream:
    """Uniform values that both twins draw in turn, and the shapes they asked for."""

    def __init__(self):
        self.generator = np.random.default_rng(5)
        self.shapes = []

    def __call__(self, shape):
        self.shapes.append(tuple(shape))
        return self.generator.random(shape)


def _streams(monkeypatch):
    """One stream for each twin in place of its framework's own, both with the same values."""
    ours, theirs = Stream(), Stream()
    random = SimpleNamespace(
        bernoulli=lambda key, keep, shape: jnp.asarray(ours(shape) < keep),
        uniform=lambda key, shape: jnp.asarray(ours(shape)),
    )
    monkeypatch.setattr(vit_jax.drop, "jax", SimpleNamespace(random=random))
    monkeypatch.setattr("torch.rand", lambda shape, device: torch.from_numpy(theirs(shape)))
    return ours, theirs


def _train_jax(cfg, arrays, images, direction):
    """Logits, and gradients of their product with `direction`."""

    def loss(params, images):
        logits = make_merge(cfg)(params)(images, rngs=nnx.Rngs(dropout=0)).logits
        return jnp.sum(logits * direction), logits

    def run(model, images):
        return jax.grad(loss, has_aux=True)(get_params(model), images)

    gradients, logits = call_jax(cfg, arrays, run, images)
    by_name = {leaf.name: leaf for leaf in leaves(abstract_model(cfg))}
    return logits, {name: by_name[name].to_common(value) for name, value in gradients.items()}


def _train_torch(cfg, arrays, images, direction):
    """The same of the PyTorch twin."""
    model = vit_torch.from_arrays(cfg, arrays).train()
    logits = model(nchw(images)).logits
    (logits * torch.from_numpy(direction)).sum().backward()
    gradients = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    return logits.detach().numpy(), gradients


@pytest.mark.parametrize("case", QUICK_AND_SLOW)
def test_same_masks_give_the_same_training_pass(case, monkeypatch):
    """Random streams differ between frameworks, so the masks are injected; everything else agrees."""
    cfg = CASES[case]
    arrays, images = redrawn(cfg), random_images(cfg, 5, seed=1)
    direction = np.random.default_rng(2).standard_normal((5, cfg.num_classes))
    drawn = _streams(monkeypatch)
    our_logits, ours = _train_jax(cfg, arrays, images, direction)
    their_logits, theirs = _train_torch(cfg, arrays, images, direction)
    assert drawn[0].shapes == drawn[1].shapes
    assert error(our_logits, their_logits) < EXACT
    assert error(run_torch(cfg, arrays, images).logits, their_logits) > 1e-2
    assert ours.keys() == theirs.keys() == arrays.keys()
    for name, gradient in theirs.items():
        if name.endswith("k_norm.bias"):  # the same for every key, and so without effect
            assert max(abs(ours[name]).max(), abs(gradient).max()) < EXACT, name
        else:
            assert error(ours[name], gradient) < EXACT, name


def test_every_rate_reaches_its_layer(monkeypatch):
    """What is drawn as two images are trained on: how many values, of which shape, in which order."""
    cfg = TINY.replace(**RATES)
    B, N, D, M = 2, 9, 30, 44
    tokens = 1 + int(N * 0.6)
    attention, mlp = [(B, 5, tokens, tokens), (B, tokens, D)], [(B, tokens, M), (B, tokens, D)]
    path = [(B, 1, 1)]
    first, later = attention + mlp, attention + path + mlp + path  # the first is never skipped
    _, drawn = _streams(monkeypatch)
    _train_torch(cfg, redrawn(cfg), random_images(cfg), np.ones((B, cfg.num_classes)))
    assert drawn.shapes == [(B, 1 + N, D), (B, N), *first, *later, *later, (B, D)]


@pytest.mark.parametrize("case", ["dropout", "distilled", "branches"])
def test_evaluation_is_that_of_a_schema_without_rates(case):
    cfg = CASES[case]
    arrays, images = redrawn(cfg), random_images(cfg)
    plain = cfg.replace(**dict.fromkeys(RATES, 0.0))
    ours, theirs = run_both(cfg, arrays, images), run_both(plain, arrays, images)
    for twin in ours:
        np.testing.assert_array_equal(ours[twin].logits, theirs[twin].logits)


@pytest.mark.parametrize("name", ["rope_mixed", "rope_axial", "rope_centered", "plain", "map"])
def test_patches_in_another_order_are_the_same_image(name, monkeypatch):
    """A rate so small that all are kept still shuffles them, and positions must follow."""
    cfg = variant(name).replace(dropout_patch=1e-20)
    arrays, images = redrawn(cfg), random_images(cfg)
    expected = run_torch(cfg, arrays, images).logits
    drawn = _streams(monkeypatch)
    ours = call_jax(cfg, arrays, lambda model, x: model(x, rngs=nnx.Rngs(dropout=0)).logits, images)
    theirs = vit_torch.from_arrays(cfg, arrays).train()(nchw(images)).logits
    assert drawn[0].shapes == drawn[1].shapes == [(2, 9)]
    assert error(ours, expected) < EXACT
    assert error(theirs.detach(), expected) < EXACT


def test_block_rates_grow_linearly():
    assert variant("dropout").block_drop_rates == pytest.approx((0.0, 0.3, 0.6))
