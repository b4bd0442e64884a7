"""Distillation is DeiT's, in both twins, from a teacher of either."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import vit_jax.teacher
import vit_torch
import vit_torch.teacher
from tests.support.refusals import one_line
from tests.support.tiny import TINY, error, variant
from vit_config import ConfigError, InputError, Preprocess, Recipe, Weights
from vit_jax.functional import get_params
from vit_jax.leaves import leaves
from vit_jax.loss import distillation
from vit_jax.step import make_gradients
from vit_jax.weights import from_arrays
from vit_torch.loss import distillation as torch_distillation
from vit_torch.step import make_gradients as make_torch_gradients
from vit_train.distilling import make_teach

STREAM = np.random.default_rng(0)
LOGITS, TEACHER = 3 * STREAM.standard_normal((2, 5, 7))
STUDENT = variant("distilled").replace(depth=1)


def deit(kind, student, teacher, temperature):
    """`DistillationLoss.forward` of facebookresearch/deit, losses.py, less the labels' part."""
    if kind == "hard":
        return F.cross_entropy(student, teacher.argmax(dim=1))
    return (
        F.kl_div(
            F.log_softmax(student / temperature, dim=1),
            F.log_softmax(teacher / temperature, dim=1),
            reduction="sum",
            log_target=True,
        )
        * (temperature * temperature)
        / student.numel()
    )


@pytest.mark.parametrize(("kind", "temperature"), [("hard", 1.0), ("soft", 1.0), ("soft", 3.0)])
def test_the_loss_is_deits(kind, temperature, x64):
    student = torch.from_numpy(LOGITS.copy()).requires_grad_()
    expected = deit(kind, student, torch.from_numpy(TEACHER), temperature)
    expected.backward()

    def ours(x):
        return distillation(x, jnp.asarray(TEACHER), kind=kind, temperature=temperature).mean()

    x = torch.from_numpy(LOGITS.copy()).requires_grad_()
    theirs = torch_distillation(x, torch.from_numpy(TEACHER), kind=kind, temperature=temperature).mean()
    theirs.backward()
    loss, gradient = jax.value_and_grad(ours)(jnp.asarray(LOGITS))
    for actual, slope in ((loss, gradient), (theirs.detach(), x.grad)):
        assert float(actual) == pytest.approx(float(expected.detach()), rel=1e-13)
        assert error(slope, student.grad) < 1e-13


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_those_of_deits_two_losses(kind, accumulate, x64):
    recipe = Recipe(
        dtype="float64", distill=kind, distill_weight=0.3, label_smoothing=0.1, accumulate=accumulate
    )
    torch.manual_seed(0)
    model = vit_torch.ViT(STUDENT).double()
    images = STREAM.standard_normal((4, *STUDENT.image_size, 3))
    labels, teacher = STREAM.integers(0, 11, 4), STREAM.standard_normal((4, 11))
    in_torch = {
        "image": torch.from_numpy(images.transpose(0, 3, 1, 2).copy()),
        "label": torch.from_numpy(labels),
        "teacher": torch.from_numpy(teacher),
    }
    output = model(in_torch["image"])
    of_labels = F.cross_entropy(output.head_logits[0], in_torch["label"], label_smoothing=0.1)
    of_teacher = deit(kind, output.head_logits[1], in_torch["teacher"], 1.0)
    loss = of_labels * (1 - 0.3) + of_teacher * 0.3
    names = [name for name, _ in model.named_parameters()]
    expected = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))

    metrics = make_torch_gradients(model, recipe)(0, in_torch)
    assert float(metrics["loss"]) == pytest.approx(float(loss.detach()), rel=1e-13)
    ours = from_arrays(STUDENT, vit_torch.to_arrays(model))
    layout = {leaf.name: leaf for leaf in leaves(ours)}
    batch = {name: jnp.asarray(value) for name, value in (("label", labels), ("teacher", teacher))}
    grads, actual = jax.jit(make_gradients(STUDENT, recipe))(
        get_params(ours), {**batch, "image": jnp.asarray(images)}, jnp.int32(0)
    )
    assert float(actual["loss"]) == pytest.approx(float(loss.detach()), rel=1e-13)
    largest = max(float(value.norm()) for value in expected.values())
    for name, value in expected.items():
        for each in (model.get_parameter(name).grad, layout[name].to_common(grads[name])):
            assert np.linalg.norm(np.asarray(each) - value.numpy()) < 1e-12 * largest, name


def test_a_teacher_of_either_framework_sees_what_the_student_sees():
    """In its own normalisation."""
    torch.manual_seed(0)
    model = vit_torch.ViT(TINY)
    theirs = Preprocess(mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))
    weights = Weights(TINY, theirs, vit_torch.to_arrays(model))
    pixels = STREAM.integers(0, 256, (4, 21, 15, 3), np.uint8)
    ours = Preprocess(mean=(0.5, 0.5, 0.5), std=(0.1, 0.2, 0.3))
    expected = model.eval()(torch.from_numpy(theirs.normalise(pixels).transpose(0, 3, 1, 2).copy()))
    for module in (vit_jax.teacher, vit_torch.teacher):
        teach = make_teach(module.make_teacher(weights), ours=ours, theirs=theirs)
        batch = teach({"image": ours.normalise(pixels), "label": np.arange(4)})
        assert batch["teacher"].shape == (4, 11)
        assert error(batch["teacher"], expected.logits.detach()) < 1e-5
        assert batch["label"].tolist() == [0, 1, 2, 3]


def test_a_model_without_the_head_and_a_teacher_of_other_images_are_refused():
    recipe = Recipe(distill="hard")
    for make in (
        lambda: make_gradients(TINY, recipe),
        lambda: make_torch_gradients(vit_torch.ViT(TINY), recipe),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        one_line(caught.value, 'distill = "hard"', "distill_token = false")
    grey = Preprocess(mean=(0.5,), std=(0.5,))
    with pytest.raises(InputError, match="1 channels, the student 3"):
        make_teach(lambda images: images, ours=Preprocess(), theirs=grey)
