"""The average of the parameters is that of optax, timm and torch, in both twins, in float64."""

from copy import deepcopy

import optax
import torch

from parity.porting.reading.libraries.peers import import_timm
from tests.support.recipe_sides import (
    BASE,
    assert_equal,
    by_jax,
    by_torch,
    differ,
    gradients,
    small,
    values,
)
from vit_jax.step import TrainState


def _averages():
    """The average after each update: of both twins, and the models whose parameters it is of."""
    recipe, models = BASE.replace(ema=0.9), []
    for count in range(len(gradients()) + 1):
        model = small()
        for name, value in by_torch(BASE, gradients()[:count])[0].items():
            model.get_parameter(name).data = torch.from_numpy(value)
        models.append(model)
    return by_jax(recipe, gradients())[1], by_torch(recipe, gradients())[1], models


def test_the_average_is_optaxs_timms_and_torchs(x64):
    import_timm()
    from timm.utils import ModelEmaV3
    from torch.optim.swa_utils import get_ema_avg_fn

    ours, theirs, models = _averages()
    in_timm, in_torch, in_optax = (
        ModelEmaV3(models[0], decay=0.9),
        deepcopy(models[0]),
        values(models[0]),
    )
    average = get_ema_avg_fn(0.9)
    for model in models[1:]:
        in_timm.update(model)
        for name, parameter in in_torch.named_parameters():
            parameter.data = average(parameter.data, model.get_parameter(name).data, 1)
        in_optax = optax.incremental_update(values(model), in_optax, 1.0 - 0.9)
    for actual in (ours, theirs):
        assert_equal(actual, values(in_timm.module))
        assert_equal(actual, values(in_torch))
        assert_equal(actual, in_optax)


def test_a_warmed_up_average_is_timms(x64):
    """Told the step as timm's script tells it: the number of updates done, the last one included."""
    import_timm()
    from timm.utils import ModelEmaV3

    recipe, (_, _, models) = BASE.replace(ema=0.7, ema_warmup=True), _averages()
    in_timm = ModelEmaV3(models[0], decay=0.7, use_warmup=True)
    for step, model in enumerate(models[1:], 1):
        in_timm.update(model, step=step)
    for actual in (by_jax(recipe, gradients())[1], by_torch(recipe, gradients())[1]):
        assert_equal(actual, values(in_timm.module))
        assert differ(actual, by_torch(BASE.replace(ema=0.7), gradients())[1])


def test_the_averages_that_begin_with_a_copy_are_others(x64):
    """Those of torch's AveragedModel and of timm where it is told the step: its own script tells it."""
    import_timm()
    from timm.utils import ModelEmaV3
    from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

    ours, _, models = _averages()
    in_timm = ModelEmaV3(models[0], decay=0.9)
    in_torch = AveragedModel(models[0], avg_fn=get_ema_avg_fn(0.9))
    for step, model in enumerate(models[1:], 1):
        in_timm.update(model, step=step)
        in_torch.update_parameters(model)
    expected = values(models[1])
    for model in models[2:]:
        expected = {name: 0.9 * expected[name] + 0.1 * value for name, value in values(model).items()}
    assert_equal(values(in_timm.module), expected)
    assert_equal(values(in_torch.module), expected)
    assert differ(ours, expected)


def test_the_average_is_evaluated_if_one_is_kept():
    without = TrainState(step=0, params="current", opt_state=None)
    assert without.averaged == "current"
    assert without._replace(ema="average").averaged == "average"
