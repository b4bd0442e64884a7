"""The Trainer's checkpoint folders: read, carried on in optax to the same next step.

The Trainer itself refuses to run without accelerate, which is no dependency here. Everything in the
folders is made by its own methods all the same - groups, optimiser, scheduler, saving and loading of
both, TrainerState, TrainingArguments - only the loop around them is the test's, and the number of
processes, which accelerate would keep, is put into its place.
"""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from parity.porting.reading.libraries.peers import import_timm
from parity.runs.foreign import read_foreign, recognise
from parity.runs.foreign.groups import hf_orders
from parity.runs.foreign.hyperparameters import say_undecayed
from parity.runs.foreign.statements import Statements, same
from tests.support.opens import opens
from tests.support.runs_foreign import (
    STEPS,
    Training,
    assert_near,
    next_in_optax,
    ours,
    redraw,
)
from vit_config import Recipe

import_timm()  # transformers imports torchvision, too, which that mends where it does not fit torch

import transformers  # noqa: E402
from transformers import ViTConfig as HfConfig  # noqa: E402
from transformers import ViTForImageClassification  # noqa: E402
from transformers.trainer import Trainer, TrainerState  # noqa: E402
from transformers.training_args import TrainingArguments  # noqa: E402

EPOCHS = 4
SIZES = {
    "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 30,
    "image_size": [12, 6], "patch_size": [4, 3], "num_labels": 7, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
OPTIONS = {
    "linear": {"warmup_steps": 5, "max_grad_norm": 0.7, "weight_decay": 0.05},
    "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 0.25, "max_grad_norm": 0.0,
               "label_smoothing_factor": 0.1},
    "sgd": {"optim": "sgd", "lr_scheduler_type": "constant", "weight_decay": 0.1, "max_grad_norm": 1.0},
}  # fmt: skip


def trainer_of(model, folder, **options):
    """A Trainer with its own optimiser and scheduler, made without accelerate."""
    cpu = mock.patch.object(TrainingArguments, "_setup_devices", torch.device("cpu"))
    with cpu, mock.patch("transformers.training_args.is_accelerate_available", return_value=False):
        args = TrainingArguments(
            output_dir=str(folder), use_cpu=True, learning_rate=3e-3, per_device_train_batch_size=4,
            num_train_epochs=EPOCHS, seed=11, report_to=[], **options,
        )  # fmt: skip
    args.distributed_state = SimpleNamespace(num_processes=1, process_index=0, local_process_index=0)
    trainer = Trainer.__new__(Trainer)
    trainer.model, trainer.args, trainer.optimizer, trainer.lr_scheduler = model, args, None, None
    trainer.optimizer_cls_and_kwargs = None
    trainer.is_deepspeed_enabled = trainer.is_fsdp_enabled = trainer.is_fsdp_xla_v1_enabled = False
    trainer.create_optimizer_and_scheduler(EPOCHS * STEPS)
    return trainer


def start(folder, seed=0, intermediate_size=30, **options):
    sizes = {**SIZES, "intermediate_size": intermediate_size}
    model = redraw(ViTForImageClassification(HfConfig(**sizes)), seed).train()
    trainer = trainer_of(model, folder, **options)
    clip = trainer.args.max_grad_norm or None
    smoothing = trainer.args.label_smoothing_factor
    live = Training(model, trainer.optimizer, trainer.lr_scheduler, clip=clip, smoothing=smoothing)
    return trainer, live


def update(live):
    live.update()
    live.scheduler.step()


def saved(trainer, live, folder):
    """The folder after so many updates."""
    folder.mkdir(parents=True)
    live.model.save_pretrained(folder)
    trainer._save_optimizer_and_scheduler(str(folder))
    state = TrainerState(
        epoch=live.step / STEPS, global_step=live.step, max_steps=EPOCHS * STEPS,
        num_train_epochs=EPOCHS, train_batch_size=4,
    )  # fmt: skip
    state.save_to_json(str(folder / "trainer_state.json"))
    torch.save(trainer.args, folder / "training_args.bin")
    torch.save({"cpu": torch.random.get_rng_state()}, folder / "rng_state.pth")
    return folder


def trained(folder, steps=7, **options):
    trainer, live = start(folder, **options)
    for _ in range(steps):
        update(live)
    return live, saved(trainer, live, folder / f"checkpoint-{steps}")


@pytest.mark.parametrize("case", OPTIONS)
def test_the_next_step_is_the_trainers(case, tmp_path, x64):
    live, path = trained(tmp_path, **OPTIONS[case])
    assert recognise(path) == "hf"
    with opens() as opened:
        run = read_foreign(path)
    assert opened["config.json"] == opened["trainer_state.json"] == 1
    assert (run.state.step, run.steps_per_epoch) == (7, STEPS)
    assert run.recipe.batch_size == 4
    assert run.recipe.seed == 11
    assert run.recipe.epochs == EPOCHS
    assert any("rng_state.pth" in note for note in run.notes)
    grads = ours(path, live.gradients())
    update(live)
    after = next_in_optax(run, grads)
    assert_near(after.params, ours(path, live.params()))


def test_moments_of_queries_keys_and_values_are_joined(tmp_path):
    live, path = trained(tmp_path, **OPTIONS["linear"])
    run = read_foreign(path)
    actual = run.state.moments["exp_avg_sq"]["blocks.1.attn.qkv.weight"]
    attention = live.model.vit.layers[1].attention
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    parts_ = [live.optimizer.state[part.weight]["exp_avg_sq"].numpy() for part in parts]
    assert np.array_equal(actual, np.concatenate(parts_))
    assert not np.array_equal(parts_[0], parts_[1])


def test_the_order_is_that_of_the_library(tmp_path):
    model = ViTForImageClassification(HfConfig(**SIZES))
    for number, value in enumerate(model.parameters()):
        value.data.fill_(number)  # which the file then says of each name
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    numbers = {name.removeprefix("vit."): int(value.flat[0]) for name, value in tensors.items()}
    newest, older = hf_orders("hf-vit", transformers.__version__, numbers)
    assert [numbers[name] for name in newest] == list(range(len(numbers)))
    assert sorted(older) == sorted(newest) != newest != older
    assert hf_orders("hf-vit", "4.57.1", numbers) == [older]


def test_a_folder_of_version_4_is_followed(tmp_path):
    """Its optimiser counts norms after the MLP; here the live one is made to."""
    trainer, live = start(tmp_path, **OPTIONS["linear"])
    for _ in range(4):
        update(live)
    path = saved(trainer, live, tmp_path / "checkpoint-4")
    _as_version_4(path)
    run = read_foreign(path)
    layer = live.model.vit.layers[1]
    for name, value in {"norm1": layer.layernorm_before, "mlp.fc1": layer.mlp.fc1}.items():
        moment = live.optimizer.state[value.bias]["exp_avg"].numpy()
        assert np.array_equal(run.state.moments["exp_avg"][f"blocks.1.{name}.bias"], moment)


def _as_version_4(path):
    """Number the parameters of a folder's optimiser as version 4 of the library would have."""
    names = [name.removeprefix("vit.") for name in load_file(path / "model.safetensors")]
    new, old = hf_orders("hf-vit", "5.23.0", names)
    content = torch.load(path / "optimizer.pt")

    def spared(name):
        return "bias" in name or "norm" in name

    counted = sorted(new, key=spared)  # decayed ones first
    numbers = [counted.index(name) for name in sorted(old, key=spared)]
    content["state"] = {index: content["state"][number] for index, number in enumerate(numbers)}
    torch.save(content, path / "optimizer.pt")
    config = path / "config.json"
    config.write_text(config.read_text().replace(transformers.__version__, "4.57.1"))


def test_a_recipe_that_says_what_no_file_says(tmp_path):
    _live, path = trained(tmp_path, **OPTIONS["linear"])
    (path / "training_args.bin").unlink()
    recipe = Recipe(
        epochs=EPOCHS, batch_size=4, seed=3, clip_norm=0.7, clip_eps=1e-6, label_smoothing=0.0,
        schedule="linear", warmup_epochs=5 / 3, warmup_start=0.0, dtype="float64",
    )  # fmt: skip
    run = read_foreign(path, recipe=recipe)
    assert run.recipe.learning_rate == 3e-3
    assert run.recipe.weight_decay == 0.05
    assert run.recipe.decay == "not_vectors"
    assert run.recipe.optimizer == "adamw"


def test_where_nothing_decays_adam_is_adamw():
    for decay, said in ((0.0, "adamw"), (0.1, None)):
        stated = Statements()
        stated.say("the groups", beta1=0.9, weight_decay=decay)
        say_undecayed(stated, None)
        assert stated.get("optimizer") == said


def test_numbers_that_differ_by_more_than_round_off_are_two_values():
    assert same(1.0, 1 + 0.5e-9)
    assert not same(1.0, 1 + 1.5e-9)
    assert not same(1, True)
