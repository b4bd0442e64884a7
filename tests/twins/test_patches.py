"""Padded batches of patches: an image in one is what it is alone, whatever the padding holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax.positions
import vit_jax.rope
import vit_jax.weights
import vit_torch.positions
import vit_torch.rope
import vit_torch.weights
from parity.measure.redraw import redraw
from tests.support.tiny import TINY, VARIANTS, error
from vit_config import InputError
from vit_config.images.patches import Patches, collate, size_within
from vit_config.parameters import parameters
from vit_config.rope import Rope
from vit_jax.functional import get_params, make_apply
from vit_jax.scanned import Loop

PATCH = (7, 5)
GRIDS = [(2, 3), (1, 1), (5, 1), (1, 4), (4, 5), (3, 3), (6, 2)]
WIDE = {"hidden_size": 40}
PLAIN = {"class_token": False, "pool": "mean"}
FLEX = {
    "conv": {},
    "linear_chw": {"patch_embed": "linear_chw", "pool": "mean", "register_tokens": 2},
    "bicubic": {"pos_embed_resize": "bicubic", **PLAIN},
    "dinov2": {"pos_embed_resize": "dinov2", "pool": "class_mean"},
    "corners": {"pos_embed_resize": "bilinear_corners", "pos_embed_aspect": "keep"},
    "leading_rows": {"pos_embed_resize": "leading_rows", "pos_embed_grid": (6, 5)},
    "own_table": {
        "pos_embed_grid": (4, 5),
        "pos_embed_aspect": "keep",
        "register_tokens": 2,
        "pool": "mean",
    },
    "factorized": {"pos_embed": "factorized", "pos_embed_grid": (4, 5), "pos_embed_resize": "bilinear"},
    "leading_factorized": {
        "pos_embed": "factorized",
        "pos_embed_grid": (6, 5),
        "pos_embed_resize": "leading_rows",
    },
    "map": {"pool": "map", "class_token": False, "pos_embed_resize": "bilinear_antialias"},
    "map_of_all": {"pool": "map", "pool_prefix": True},
    "rope": {**WIDE, "rope": Rope(theta=100.0, reference_grid=(5, 2), offset=1.0, axes="wh")},
    "rope_centered": {**WIDE, "pos_embed": "none", "rope": Rope(kind="centered", pairs="half"), **PLAIN},
    "rope_mixed": {**WIDE, "rope": Rope(kind="mixed", theta=10.0, axes="wh")},
    "parallel": {"block": "parallel", "pos_embed": "none"},
    "branches": {"num_parallel": 2},
    "res_post": {"block": "res_post", "layer_scale": 0.1},
    "sandwich": VARIANTS["sandwich"],
    "differential": {"attention": "differential", "norm": "rmsnorm"},
}
IN_BOTH = ("map", "own_table", "rope_mixed")


def schema(name):
    return TINY.replace(**{"dynamic_image_size": True, **FLEX[name]})


def weights(cfg):
    return {name: redraw(name, each.kind, each.shape, 0) for name, each in parameters(cfg).items()}


def images_of(grids=GRIDS):
    stream = np.random.default_rng(0)
    return [stream.standard_normal((rows * 7, columns * 5, 3)) for rows, columns in grids]


def padded(images, lengths=(23, 40)):
    """A batch whose padding is no number, and has coordinates of its own."""
    batch = collate(images, PATCH, lengths)
    batch.pixels[~batch.valid] = np.nan
    batch.coordinates[~batch.valid] = 77
    return batch


def tensors(batch):
    return Patches(*(torch.from_numpy(each) for each in batch))


def arrays(batch):
    return Patches(*(jnp.asarray(each) for each in batch))


@nnx.jit  # one program: by itself each operation would be one
def compute(model, batch):
    return model(batch).logits


@pytest.mark.parametrize("name", FLEX)
def test_an_image_in_a_batch_is_what_it_is_alone(name):
    """Alone it goes the way of images: another projection, other positions."""
    cfg, images = schema(name), images_of()
    model = vit_torch.weights.from_arrays(cfg, weights(cfg))
    with torch.no_grad(), torch.device("meta"):  # where what is not made on the images' device would be
        together = model(tensors(padded(images)))
        for row, image in enumerate(images):
            alone = model(torch.from_numpy(image.transpose(2, 0, 1))[None])
            assert error(together.logits[row], alone.logits[0]) <= 1e-12
            count = alone.patch_tokens.shape[1]
            assert error(together.patch_tokens[row, :count], alone.patch_tokens[0]) <= 1e-12


@pytest.mark.parametrize("name", IN_BOTH)
def test_both_twins_agree_on_patches_and_on_every_gradient(name):
    cfg, batch = schema(name), padded(images_of())
    values = weights(cfg)
    pull = np.random.default_rng(1).standard_normal((len(GRIDS), cfg.num_classes))
    model = vit_torch.weights.from_arrays(cfg, values, kernel="reference")
    theirs = model(tensors(batch)).logits
    (theirs * torch.from_numpy(pull)).sum().backward()
    with jax.enable_x64(True):
        twin = vit_jax.weights.from_arrays(cfg, values)
        apply = make_apply(cfg, loop=Loop(scan=True))

        def loss(params):
            logits = apply(params, arrays(batch), return_tokens=False).logits
            return (logits * pull).sum(), logits

        (_, ours), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(get_params(twin))
        assert error(ours, theirs.detach()) <= 1e-12
        for leaf in vit_jax.leaves.leaves(twin):
            expected = dict(model.named_parameters())[leaf.name].grad
            assert error(leaf.to_common(grads[leaf.name]), expected) <= 1e-12, leaf.name


@pytest.mark.parametrize("name", ["parallel", "branches", "res_post", "differential"])
def test_blocks_of_every_kind_see_the_padding(name, x64):
    cfg, batch = schema(name).replace(depth=1), padded(images_of())
    with torch.no_grad():
        theirs = vit_torch.weights.from_arrays(cfg, weights(cfg))(tensors(batch)).logits
    ours = compute(vit_jax.weights.from_arrays(cfg, weights(cfg)), arrays(batch))
    assert error(ours, theirs) <= 1e-12


def test_one_program_serves_every_batch_of_a_length():
    cfg = schema("own_table")
    values = {name: each.astype(np.float32) for name, each in weights(cfg).items()}
    params = get_params(vit_jax.weights.from_arrays(cfg, values))
    apply = make_apply(cfg)
    traced = []

    @jax.jit
    def run(batch):
        traced.append(batch.pixels.shape)
        return apply(params, batch).logits

    for grids in ([(2, 3), (5, 4)], [(1, 1), (3, 3)], [(6, 2), (4, 5)]):
        run(arrays(padded(images_of(grids), (9, 23))))
    assert traced == [(2, 23, 105), (2, 9, 105)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_of_padding_alone_makes_no_nan(dtype):
    batch = tensors(padded(images_of()))
    batch.valid[2] = False
    model = vit_torch.ViT(schema("map")).to(dtype)
    logits = model(batch._replace(pixels=batch.pixels.to(dtype))).logits
    assert torch.isfinite(logits).all()
    logits.sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in model.parameters())


def test_fast_kernels_see_the_padding_too():
    cfg, batch = schema("conv"), padded(images_of())
    model = vit_torch.weights.from_arrays(cfg, weights(cfg), kernel="sdpa")
    with jax.enable_x64(True):
        twin = vit_jax.weights.from_arrays(cfg, weights(cfg), kernel="xla")
        fast = compute(twin, arrays(batch))
    with torch.no_grad():
        expected = vit_torch.weights.from_arrays(cfg, weights(cfg))(tensors(batch)).logits
        assert error(model(tensors(batch)).logits, expected) <= 1e-12
    assert error(fast, expected) <= 1e-5  # it computes in float32


def test_training_drops_patches_and_keeps_their_places():
    cfg = schema("own_table").replace(dropout_patch=0.4)
    batch = tensors(padded(images_of()))
    model = vit_torch.weights.from_arrays(cfg, weights(cfg)).train()
    assert model(batch).patch_tokens.shape == (7, 13, 30)
    batch = arrays(padded(images_of()))

    @jax.jit
    def draw_and_run():
        rngs = nnx.Rngs(params=0, dropout=1)
        return vit_jax.ViT(cfg, rngs=rngs)(batch, rngs=rngs).logits

    assert jnp.isfinite(draw_and_run()).all()


@pytest.mark.parametrize("name", ["corners", "leading_rows", "factorized", "leading_factorized"])
def test_both_twins_fit_a_table_to_the_same_places(name, x64):
    cfg, batch = schema(name), padded(images_of())
    tables = {each: array for each, array in weights(cfg).items() if each in cfg.table_shapes}
    ours = jax.jit(lambda tables, batch: vit_jax.positions.fit_positions(
        tables, cfg, vit_jax.positions.places_of(batch)
    ))(tables, arrays(batch))  # fmt: skip
    places = vit_torch.positions.places_of(tensors(batch))
    theirs = vit_torch.positions.fit_positions(
        {each: torch.from_numpy(array) for each, array in tables.items()}, cfg, places
    )
    assert error(ours, theirs) <= 1e-15


def test_kept_patches_of_each_image_keep_their_own_angles(x64):
    stream = np.random.default_rng(0)
    angles, kept = (
        stream.standard_normal((2, 5, 6, 4)),
        np.array([[4, 0, 5], [1, 3, 2]]),
    )  # (B, h, N, d/2)
    expected = np.stack([np.sin(each[:, rows]) for each, rows in zip(angles, kept, strict=True)])
    expected = expected.transpose(0, 2, 1, 3)  # (B, n, h, d/2)
    ours = vit_jax.rope.make_rotation(jnp.asarray(angles), jnp.asarray(kept))
    theirs = vit_torch.rope.make_rotation(torch.from_numpy(angles), torch.from_numpy(kept))
    assert error(ours.sin, expected) <= 1e-15
    assert error(theirs.sin, expected) <= 1e-15


def test_heads_and_features_take_patches():
    cfg, batch = schema("linear_chw"), tensors(padded(images_of()))
    model = vit_torch.weights.from_arrays(cfg, weights(cfg))
    with torch.no_grad():
        tokens = model.forward_features(batch)
        assert error(model.forward_head(tokens, valid=batch.valid), model.logits(batch)) <= 1e-12
    with pytest.raises(InputError, match='"NCHW" needs images of one grid'):
        model.forward_intermediates(batch)
    twin = vit_jax.weights.abstract_model(cfg)
    with pytest.raises(InputError, match='"NHWC" needs images of one grid'):
        twin.forward_intermediates(arrays(padded(images_of())))


def test_the_shortest_length_that_holds_all_is_taken():
    batch = collate(images_of(), PATCH, (8, 20, 64))
    assert batch.pixels.shape == (7, 20, 105)
    assert batch.valid.sum(axis=1).tolist() == [6, 1, 5, 4, 20, 9, 12]
    assert collate(images_of(), PATCH).pixels.shape[1] == 20


@pytest.mark.parametrize(
    ("grid", "shape", "said"),
    [
        ((2, 3), None, r"image 0 has 2x3 = 6 patches, the length is 5"),
        (None, (6, 40, 3), r"the image is 6x40, not divisible by patch_size = \(7, 5\).* 7x40"),
        (None, (14, 12, 3), r"the image is 14x12, not divisible"),
        (None, (14, 10), r"an image has shape \(14, 10\)"),
    ],
)
def test_images_that_are_no_patches_are_refused(grid, shape, said):
    images = images_of([grid]) if grid else [np.zeros(shape)]
    with pytest.raises(InputError, match=said):
        collate(images, PATCH, 5)


def test_batches_that_do_not_fit_the_model_are_refused():
    batch = tensors(collate(images_of(), PATCH))
    for changes, given, said in (
        ({"dynamic_image_size": False}, batch, "need dynamic_image_size = true"),
        ({"pos_embed": "sincos1d"}, batch, 'pos_embed = "sincos1d"'),
        ({"in_channels": 1}, batch, r"105 values each, the model's have 7 \* 5 \* 1 = 35"),
        ({}, batch._replace(valid=batch.valid[:, 1:]), r"expected pixels .* valid \(B, N\)"),
    ):
        model = vit_torch.ViT(TINY.replace(**{"dynamic_image_size": True, **changes}))
        with pytest.raises(InputError, match=said):
            model(given)


def test_an_image_beyond_both_tables_is_refused():
    model = vit_torch.ViT(schema("leading_factorized"))
    for grid in ((7, 2), (2, 6)):
        image = torch.zeros(1, 3, grid[0] * 7, grid[1] * 5)
        with pytest.raises(
            InputError, match=rf"{grid[0]}x{grid[1]} patches, the position tables have 6x5"
        ):
            model(image)


def test_a_size_within_a_budget_of_patches():
    assert size_within((3, 900), (7, 5), 12) == (7, 60)  # smaller than a patch
    assert size_within((1, 1), (7, 5), 12) == (21, 20)
    with pytest.raises(InputError, match=r"1x12000000 pixels has 3 patches .* max_patches = 2"):
        size_within((1, 12_000_000), (7, 5), 2)
