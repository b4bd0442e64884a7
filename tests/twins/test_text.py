"""The text towers of both twins are one function, and that of transformers' CLIP and SigLIP."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import parity
import vit_jax
import vit_jax.leaves
import vit_jax.text
import vit_jax.weights
import vit_torch
import vit_torch.leaves
import vit_torch.text
import vit_torch.weights
from parity.twins.check import check_weights
from parity.twins.pairing import pair
from tests.support import text_models
from tests.support.tiny import error
from vit_config import ConfigError, InputError, TextConfig
from vit_config.parameters import text_parameters
from vit_jax.loss import contrastive
from vit_torch.loss import contrastive as torch_contrastive

LOSS = {"clip": "softmax", "clip of old": "softmax", "siglip": "sigmoid"}
TINY = TextConfig(
    vocab_size=59, context_length=13, hidden_size=24, depth=2, num_heads=3, mlp_dim=37, projection_dim=17
)
VARIANTS = [
    TINY,
    TINY.replace(pool="eos", eos_id=57, projection_bias=True, logit_bias=True),
    TINY.replace(causal=False, pool="last", act="gelu_tanh", logit_scale=False),
    TINY.replace(pool="first", projection_dim=None, act="gelu"),
]


def run_jax(cfg, arrays, ids, images, kind):
    """Outputs, logits and loss, and the loss's gradients by name."""
    tower = vit_jax.text_from_arrays(cfg, arrays)

    def loss(tower):
        out = tower(jnp.asarray(ids))
        logits = tower.compare(jnp.asarray(images), out.embeddings)
        return contrastive(logits, kind=kind), (out, logits)

    (value, (out, logits)), grads = nnx.jit(nnx.value_and_grad(loss, has_aux=True))(tower)
    return [*out, logits, value], vit_jax.to_arrays(tower, grads)


def run_torch(cfg, arrays, ids, images, kind):
    tower = vit_torch.text_from_arrays(cfg, arrays)
    out = tower(torch.from_numpy(ids))
    logits = tower.compare(torch.from_numpy(images), out.embeddings)
    value = torch_contrastive(logits, kind=kind)
    value.backward()
    gradients = {name: p.grad for name, p in tower.named_parameters()}
    return [each.detach().numpy() for each in (*out, logits, value)], vit_torch.to_arrays(
        tower, gradients
    )


TWINS = {"jax": run_jax, "torch": run_torch}


@pytest.mark.parametrize("kind", text_models.KINDS)
def test_both_twins_are_transformers_tower_forward_and_backward(kind, x64):
    model = text_models.build(kind)
    read = text_models.read_live(model)
    ids, pixels = text_models.texts(), text_models.pictures()
    expected = text_models.peer(model, ids, pixels)
    expected.loss.backward()
    want = [
        expected.text_model_output.pooler_output,
        expected.text_model_output.last_hidden_state,
        expected.logits_per_image,
        expected.loss,
    ]
    images = model.get_image_features(torch.from_numpy(pixels)).pooler_output.detach().numpy()
    gradients = text_models.gradients(model, read)
    for twin, run in TWINS.items():
        (embeddings, _, *actual), grads = run(
            read.config, text_models.loaded(read), ids, images, LOSS[kind]
        )
        have = [embeddings, *actual]
        for one, other in zip(have, want, strict=True):
            assert error(one, other.detach().numpy()) <= 1e-12, twin
        assert grads.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert error(grads[name], gradient) <= 1e-12, (twin, name)


def drawn(cfg):
    stream = np.random.default_rng(3)
    shapes = {name: each.shape for name, each in text_parameters(cfg).items()}
    return {name: np.array(0.3 * stream.standard_normal(shape)) for name, shape in shapes.items()}


@pytest.mark.parametrize("cfg", VARIANTS, ids=lambda cfg: cfg.pool)
def test_both_twins_are_one_function(cfg, x64):
    arrays, ids = drawn(cfg), text_models.texts()
    images = np.random.default_rng(4).standard_normal((3, cfg.projection_dim or cfg.hidden_size))
    # no softmax depends on a bias of all logits: its gradient is nothing but rounding
    for kind in ("sigmoid",) if cfg.logit_bias else ("softmax", "sigmoid"):
        (ours, grads), (theirs, gradients) = (r(cfg, arrays, ids, images, kind) for r in TWINS.values())
        for one, other in zip(ours, theirs, strict=True):
            assert error(one, other) <= 1e-12
        for name, gradient in gradients.items():
            assert error(grads[name], gradient) <= 1e-12, name


@pytest.mark.parametrize("cfg", VARIANTS, ids=lambda cfg: cfg.pool)
def test_one_walk_pairs_their_parameters(cfg):
    ours, theirs = vit_jax.weights.abstract_text(cfg), vit_torch.weights.abstract_text(cfg)
    names = {p.name: (p.torch.shape, p.torch.kind) for p in pair(ours, theirs)}
    assert names == {n: (each.shape, each.kind) for n, each in text_parameters(cfg).items()}
    left = {".".join(map(str, path)) for path, _ in vit_jax.leaves.walk(ours)}
    assert left == {path for path, _ in vit_torch.leaves.walk(theirs)} - {"blocks"}


def test_either_twin_becomes_the_other_bit_for_bit(x64):
    arrays = drawn(TINY)
    ours = parity.to_jax(parity.to_torch(vit_jax.text_from_arrays(TINY, arrays)))
    for name, array in vit_jax.to_arrays(ours).items():
        np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize("kernel", ["xla", "reference"])
def test_each_kernel_of_jax_sees_the_mask(kernel):
    arrays = {name: each.astype(np.float32) for name, each in drawn(TINY).items()}
    ids = text_models.texts()
    exact = vit_jax.text_from_arrays(TINY, arrays)(jnp.asarray(ids)).tokens
    actual = vit_jax.text_from_arrays(TINY, arrays, kernel=kernel)(jnp.asarray(ids)).tokens
    assert error(actual, exact) <= 1e-5
    ids[:, -1] = 3
    other = vit_jax.text_from_arrays(TINY, arrays, kernel=kernel)(jnp.asarray(ids)).tokens
    assert error(other[:, :-1], actual[:, :-1]) <= 1e-6  # what comes later changes nothing before


def test_initial_values_are_drawn():
    torch.manual_seed(0)
    both = {
        "jax": vit_jax.to_arrays(vit_jax.TextTower(TINY, rngs=nnx.Rngs(0))),
        "torch": vit_torch.to_arrays(vit_torch.TextTower(TINY)),
    }
    for arrays in both.values():
        assert abs(arrays["token_embed"].std() - 0.02) < 2e-3
        assert abs(arrays["pos_embed"].std() - 0.02) < 4e-3
        assert arrays["logit_scale"] == pytest.approx(np.log(1 / 0.07))
        assert (arrays["norm.weight"] == 1).all()


def without_mask(monkeypatch):
    for twin in (vit_jax, vit_torch):
        monkeypatch.setattr(twin.text, "CausalBlock", twin.Block)


def at_the_last_end(monkeypatch):
    for twin in (vit_jax, vit_torch):
        pool = twin.text.TextPool
        name = "__call__" if twin is vit_jax else "forward"
        right = getattr(pool, name)

        def wrong(self, x, ids, right=right):
            turned = (1,)
            flip = jnp.flip if isinstance(x, jax.Array) else torch.flip
            return right(self, flip(x, turned), flip(ids, turned))

        monkeypatch.setattr(pool, name, wrong)


def not_normalised(monkeypatch):
    for twin in (vit_jax, vit_torch):
        tower = twin.text.TextTower

        def wrong(self, images, texts, xp=jnp if twin is vit_jax else torch):
            images = images / xp.sqrt((images * images).sum(-1))[:, None]
            return images @ texts.T * xp.exp(self.logit_scale[...])

        monkeypatch.setattr(tower, "compare", wrong)


@pytest.mark.parametrize("fault", [without_mask, at_the_last_end, not_normalised])
@pytest.mark.parametrize("twin", TWINS)
def test_a_fault_is_seen(fault, twin, x64, monkeypatch):
    """A missing mask, the end of a text sought from behind, a text that is not normalised."""
    model = text_models.build("clip")
    read = text_models.read_live(model)
    ids, pixels = text_models.texts(), text_models.pictures()
    expected = text_models.peer(model, ids, pixels).logits_per_image.detach().numpy()
    images = model.get_image_features(torch.from_numpy(pixels)).pooler_output.detach().numpy()
    arguments = read.config, text_models.loaded(read), ids, images, "softmax"
    assert error(TWINS[twin](*arguments)[0][-2], expected) <= 1e-12
    fault(monkeypatch)
    assert error(TWINS[twin](*arguments)[0][-2], expected) > 1e-3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pool": "eos"}, "eos_id = None"),
        ({"eos_id": 3}, "only eos has one"),
        ({"pool": "eos", "eos_id": 59}, "vocab_size = 59"),
        ({"num_heads": 5}, "num_heads"),
        ({"projection_bias": True, "projection_dim": None}, "without a projection"),
        ({"logit_bias": True, "logit_scale": False}, "without logit_scale"),
        ({"dept": 3}, "did you mean"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        TINY.replace(**changes)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (np.zeros(3, int), "shape"),
        (np.zeros((2, 14), int), "context_length = 13"),
        (np.zeros((2, 0), int), "shape"),
        (np.full((1, 3), 59), "token id 59"),
        (np.full((1, 3), -1), "token id -1"),
        (np.zeros((1, 3)), "float64"),
        (np.zeros((1, 3), int), "text 0 does not have"),
    ],
)
def test_ids_that_the_tower_cannot_take_are_refused(ids, said):
    with pytest.raises(InputError, match=said):
        VARIANTS[1].check_ids(ids)


def test_a_check_of_a_checkpoint_covers_both_towers(tmp_path):
    """And a mistake in the text tower of one twin is seen."""
    text_models.build("siglip").save_pretrained(tmp_path)
    report = check_weights(tmp_path, dtypes=["float64"])
    levels = {each.level: each.count for each in report.results}
    assert levels["text parameters"] == levels["text gradients"] == 32
    assert report.agrees
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vit_torch.text.TextPool, "forward", lambda self, x, ids: x[:, 0])
        wrong = check_weights(tmp_path, dtypes=["float64"])
    assert wrong.divergences[0].where == "text pool"
    assert {each.level for each in wrong.results if not each.passed} >= {"text loss", "text output"}
