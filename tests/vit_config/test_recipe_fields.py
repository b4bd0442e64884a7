"""Every field of a recipe changes something that a run consists of, in both twins where both have it."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from rich.console import Console

import vit_jax.train.run as run_room
import vit_torch
from tests.support.flips import AUGMENT_BASES, AUGMENT_FLIPS, MIX_FLIPS, RECIPE_FLIPS
from tests.support.recipe_sides import BASE, by_jax, by_torch, gradients
from tests.support.tiny import TINY
from tests.support.tiny_tfds import jpeg, tiny_image, write_tiny_set
from vit_config import Preprocess, ViTConfig
from vit_config.augmentation import Augment, Mix
from vit_config.errors import ConfigError
from vit_config.job import Job
from vit_config.recipe import Recipe
from vit_jax.functional import get_params
from vit_jax.model import ViT
from vit_jax.step import TrainState, make_eval_step, make_gradients
from vit_jax.train.program import CompiledRun
from vit_jax.train.run import numerics, train
from vit_jax.weights import from_arrays
from vit_torch.step import make_eval_step as make_torch_eval_step
from vit_torch.step import make_gradients as make_torch_gradients
from vit_train.batches.data import open_dataset, train_batches
from vit_train.batches.fit import make_preprocess

CFG = TINY.replace(depth=1, dropout_embed=0.3)
RECIPE = BASE.replace(batch_size=8, checkpoint_every_epochs=2)
PREPROCESS = Preprocess(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    def record(split, index, rng):
        return {"image": jpeg(tiny_image(index % 3, rng)), "label": index % 3}

    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_set(folder, record=record)
    return folder


def updates(recipe, data_dir, folder):
    """What each twin makes of the parameters and their average."""
    grads = gradients()
    return [
        [*params.values(), *(ema or {}).values()]
        for params, ema in (by_jax(recipe, grads), by_torch(recipe, grads))
    ]


def gradients_of_a_model(recipe, data_dir, folder):
    """The program of JAX's gradients, and PyTorch's gradients or why there are none."""
    dtype = "float64" if recipe.dtype == "float64" else "float32"
    torch.manual_seed(0)
    cfg = CFG.replace(distill_token=recipe.distill != "none")
    model = vit_torch.ViT(cfg).to(getattr(torch, dtype))
    stream = np.random.default_rng(0)
    batch = {
        "image": stream.standard_normal((4, *cfg.image_size, cfg.in_channels)).astype(dtype),
        "label": stream.integers(0, cfg.num_classes, 4),
        "teacher": stream.standard_normal((4, cfg.num_classes)),
    }
    params = get_params(from_arrays(cfg, vit_torch.to_arrays(model)))
    in_jax = {name: jnp.asarray(value) for name, value in batch.items()}
    program = str(jax.make_jaxpr(make_gradients(cfg, recipe))(params, in_jax, jnp.int32(0)))
    in_torch = {name: torch.from_numpy(value) for name, value in batch.items()}
    in_torch["image"] = in_torch["image"].permute(0, 3, 1, 2)
    try:
        make_torch_gradients(model, recipe)(0, in_torch)
    except ConfigError as error:
        return [program, str(error)]
    return [program, [parameter.grad.numpy() for parameter in model.parameters()]]


def scores(recipe, data_dir, folder):
    """What both twins' evaluation counts as right, of images with any number of labels."""
    torch.manual_seed(0)
    model = vit_torch.ViT(CFG).double()
    stream = np.random.default_rng(0)
    labels = (stream.random((40, CFG.num_classes)) < 0.1).astype(np.float64)
    images = stream.standard_normal((40, *CFG.image_size, CFG.in_channels))
    batch = {"image": images, "label": labels, "mask": np.ones(40, bool)}
    params = get_params(from_arrays(CFG, vit_torch.to_arrays(model)))
    evaluate = jax.jit(make_eval_step(CFG, recipe))
    in_jax = evaluate(params, {name: jnp.asarray(x) for name, x in batch.items()})
    in_torch = {name: torch.from_numpy(value) for name, value in batch.items()}
    in_torch["image"] = in_torch["image"].permute(0, 3, 1, 2)
    by_torch = make_torch_eval_step(model, recipe)(in_torch)
    return [str(int(in_jax["correct"])), str(int(by_torch["correct"]))]


def batches(recipe, data_dir, folder):
    """Every training batch."""
    dataset = open_dataset("tfds:tiny_rectangles", data_dir)
    every = list(train_batches(dataset, recipe, PREPROCESS, image_size=(21, 15), num_threads=0))
    return [[np.concatenate([batch["image"] for batch in every]), np.array([len(every)])]]


def preprocess(recipe, data_dir, folder):
    """How pixels become numbers, in training, evaluation and the file of weights."""
    dataset = open_dataset("tfds:tiny_rectangles", data_dir).oriented(recipe.exif or "ignore")
    return [str(make_preprocess(dataset, recipe))]


def events(recipe, data_dir, folder):
    """What a run logs and keeps, by its step, with a model of one number that nothing trains."""
    state = TrainState(jnp.int32(0), {"head.bias": jnp.zeros(1)}, (), None)
    metrics = {name: jnp.float32(0) for name in ("loss", "accuracy", "grad_norm", "learning_rate")}
    program = CompiledRun(
        num_devices=1,
        initialise=lambda: state,
        abstract_state=jax.eval_shape(lambda: state),
        place_state=lambda held: held,
        place_batch=lambda batch: batch,
        train_step=lambda held, batch: (held, metrics),
        eval_step=lambda params, batch: {
            name: np.float32(batch["mask"].sum()) for name in ("loss", "correct", "count")
        },
        fetch=jax.device_get,
    )
    model = ViTConfig(**{**json.loads(CFG.to_json()), "num_classes": 3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_room, "make_program", lambda *args, **options: program)
        job = Job(model, recipe, "tfds:tiny_rectangles")
        train(job, data_dir=data_dir, run_dir=folder, console=Console(quiet=True))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
    logged = [(line["kind"], line["step"]) for line in lines]
    return [str((logged, names))]


def number_formats(recipe, data_dir, folder):
    """The program of a product, as it is traced during a run."""
    with numerics(recipe):
        return [str(jax.make_jaxpr(jnp.dot)(jnp.ones((2, 3)), jnp.ones((3, 2))))]


def sums(recipe, data_dir, folder):
    """The program of JAX's gradients on one of several devices; PyTorch has one."""
    state = jax.eval_shape(lambda: get_params(ViT(CFG, rngs=nnx.Rngs(0))))
    image = jax.ShapeDtypeStruct((4, *CFG.image_size, CFG.in_channels), jnp.float32)
    batch = {"image": image, "label": jax.ShapeDtypeStruct((4,), jnp.int32)}
    step = make_gradients(CFG, recipe, axis_name="i")
    return [str(jax.make_jaxpr(step, axis_env=[("i", 8)])(state, batch, jnp.int32(0)))]


PROBES = {
    "sums": sums,
    "updates": updates,
    "gradients": gradients_of_a_model,
    "scores": scores,
    "batches": batches,
    "preprocess": preprocess,
    "events": events,
    "numerics": number_formats,
}


def _differ(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one != other
    if any(a.shape != b.shape for a, b in zip(one, other, strict=True)):
        return True
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) > 1e-6


@pytest.fixture(scope="module")
def seen(data_dir, tmp_path_factory):
    """``seen(probe, recipe)``: what a probe finds, once for each recipe."""

    @cache
    def look(probe, recipe):
        return PROBES[probe](recipe, data_dir, tmp_path_factory.mktemp(probe) / "run")

    return look


def test_every_field_has_a_flip():
    assert set(RECIPE_FLIPS) == set(Recipe.fields())
    assert set(AUGMENT_FLIPS) == set(Augment.fields())
    assert set(MIX_FLIPS) == set(Mix.fields())
    assert {flip.where for flip in RECIPE_FLIPS.values()} == set(PROBES)


@pytest.mark.parametrize("probe", PROBES)
def test_the_same_recipe_changes_nothing(probe, seen, data_dir, tmp_path, x64):
    again = PROBES[probe](RECIPE, data_dir, tmp_path / "again")
    assert not any(map(_differ, seen(probe, RECIPE), again))


@pytest.mark.parametrize("field", RECIPE_FLIPS)
def test_every_field_changes_the_run(field, seen, x64):
    flip = RECIPE_FLIPS[field]
    recipe = RECIPE.replace(**flip.companions)
    assert getattr(recipe, field) != flip.value
    before, after = (seen(flip.where, r) for r in (recipe, recipe.replace(**{field: flip.value})))
    assert all(_differ(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("field", AUGMENT_FLIPS)
def test_every_random_change_changes_the_images(field, seen):
    base = RECIPE.replace(augment=AUGMENT_BASES.get(field, Augment()))
    changed = RECIPE.replace(augment=AUGMENT_FLIPS[field])
    [one], [other] = (seen("batches", recipe) for recipe in (base, changed))
    assert _differ(one, other)


@pytest.mark.parametrize("field", MIX_FLIPS)
def test_every_way_of_mixing_changes_the_images(field, seen):
    pair = [RECIPE.replace(mix=mix) for mix in MIX_FLIPS[field]]
    [one], [other] = (seen("batches", recipe) for recipe in pair)
    assert _differ(one, other)


def test_the_seed_reaches_dropout(seen, x64):
    one, other = (seen("gradients", recipe) for recipe in (RECIPE, RECIPE.replace(seed=1)))
    assert all(_differ(*pair) for pair in zip(one, other, strict=True))


def test_only_an_open_crop_is_that_of_the_weights_to_start_from(data_dir):
    """`eval_crop` wins over what the weights say; their size, filter and pixels stay."""
    dataset = open_dataset("tfds:tiny_rectangles", data_dir)
    given = PREPROCESS.replace(crop_fraction=0.9, interpolation="bilinear")
    for value, crop in ((None, 0.9), (0.5, 0.5), (1.0, 1.0)):
        made = make_preprocess(dataset, Recipe(eval_crop=value), given)
        assert made == given.replace(crop_fraction=crop, class_names=dataset.class_names)
    assert make_preprocess(dataset, Recipe()).crop_fraction == 1.0


def test_what_the_devices_do_not_make_is_refused_with_what_to_set():
    crop = {"crop": "torchvision"}
    assert Recipe(device_side=32, augment=crop).device_side == 32
    with pytest.raises(ConfigError, match=r"set augment\.shift = 0\.0, or leave device_side out"):
        Recipe(device_side=32, augment={**crop, "shift": 0.1})
