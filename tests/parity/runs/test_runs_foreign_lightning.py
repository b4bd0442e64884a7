"""Lightning's checkpoints, laid out by hand as it does: read, carried on in optax."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from parity.runs.foreign import read_foreign, recognise
from tests.support.runs_foreign import (
    ARGS,
    ASKED,
    STEPS,
    Training,
    assert_near,
    next_in_optax,
    ours,
    redraw,
    timm,
)
from vit_config import Recipe

RECIPE = Recipe(
    epochs=5, batch_size=4, seed=2, clip_norm=0.7, clip_eps=1e-6, loss="softmax", label_smoothing=0.1,
    schedule="linear", warmup_epochs=0.0, dtype="float64",
)  # fmt: skip
TOTAL = 5 * STEPS


class Module(torch.nn.Module):
    """Stands for a LightningModule that holds the model as ``self.model``."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("class_weights", torch.ones(7))

    def forward(self, images):
        return self.model(images)


def start(seed=0, optimizer="adamw"):
    model = timm.create_model(ARGS["model"], num_classes=7, **ARGS["model_kwargs"])
    module = Module(redraw(model, seed).train())
    decayed = [value for value in model.parameters() if value.ndim >= 2]
    spared = [value for value in model.parameters() if value.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.04}, {"params": spared, "weight_decay": 0.0}]
    if optimizer == "sgd":
        made = torch.optim.SGD(groups, lr=2e-3, momentum=0.8, nesterov=True)
    else:
        made = torch.optim.AdamW(groups, lr=2e-3, betas=(0.8, 0.95), eps=1e-7)
    scheduler = LambdaLR(made, lambda step: 1.0 - step / TOTAL)
    return Training(module, made, scheduler, clip=0.7)


def update(live):
    live.update()
    live.scheduler.step()


def dump(live, folder):
    """What ``trainer.save_checkpoint`` writes."""
    path = folder / "last.ckpt"
    content = {
        "epoch": live.step // STEPS, "global_step": live.step, "pytorch-lightning_version": "2.4.0",
        "state_dict": live.model.state_dict(), "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_path": ""}},
        "optimizer_states": [live.optimizer.state_dict()],
        "lr_schedulers": [live.scheduler.state_dict()],
        "hparams_name": "kwargs",
        "hyper_parameters": {"width": 20, "learning_rate": 2e-3},
    }  # fmt: skip
    torch.save(content, path)
    return path


def trained(folder, steps=7, **options):
    live = start(**options)
    for _ in range(steps):
        update(live)
    return live, dump(live, folder)


def inner(named):
    return {name.removeprefix("model."): value for name, value in named.items()}


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_next_step_is_lightnings(optimizer, tmp_path, x64):
    live, path = trained(tmp_path, optimizer=optimizer)
    assert recognise(path) == "lightning"
    run = read_foreign(path, recipe=RECIPE, given=ASKED, steps_per_epoch=STEPS)
    assert run.state.step == 7
    assert run.recipe.optimizer == optimizer
    assert run.recipe.learning_rate == 2e-3
    assert run.recipe.decay == "not_vectors"
    assert any("callbacks" in note for note in run.notes)
    grads = ours(path, inner(live.gradients()), given=ASKED)
    update(live)
    after = next_in_optax(run, grads)
    assert_near(after.params, ours(path, inner(live.params()), given=ASKED))


def test_a_model_in_the_other_order_of_groups(tmp_path):
    live = start()
    live.optimizer.param_groups.reverse()
    for _ in range(4):
        update(live)
    path = dump(live, tmp_path)
    run = read_foreign(path, recipe=RECIPE, given=ASKED, steps_per_epoch=STEPS)
    moment = live.optimizer.state[live.model.model.head.weight]["exp_avg"].numpy()
    assert np.array_equal(run.state.moments["exp_avg"]["head.weight"], moment)
    assert SimpleNamespace(**dict(run.recipe)).decay == "not_vectors"
