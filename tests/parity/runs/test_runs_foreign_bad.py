"""Training states that cannot be carried on as asked: one line."""

import json
import shutil

import numpy as np
import pytest
import torch

from parity.porting.formats import Stored
from parity.runs.foreign import read_foreign, recognise
from parity.runs.foreign.groups import assign
from parity.runs.foreign.optimizer import Group, OptimizerState
from tests.parity.runs.test_runs_foreign_lightning import RECIPE
from tests.parity.runs.test_runs_foreign_lightning import trained as lightning_file
from tests.parity.runs.test_runs_foreign_trainer import OPTIONS
from tests.parity.runs.test_runs_foreign_trainer import trained as trainer_folder
from tests.support.runs_foreign import (
    ARGS,
    ASKED,
    STEPS,
    edited,
    error,
    timm,
    timm_file,
    timm_run,
)
from vit_config import Recipe, WeightsError, write_weights
from vit_config.errors import CheckpointError, MissingFileError, UnstatedError

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return timm_file(tmp_path_factory.mktemp("timm"))[1]


@pytest.fixture(scope="module")
def run(path):
    return read_foreign(path)


def refused(kind, path, *, names=(), **options):
    """The one line by which a file is refused."""
    said = error(kind, lambda: read_foreign(path, **options))
    assert str(path) in said
    assert "\n" not in said
    for name in names:
        assert str(name) in said, said
    return said


def changed(path, change):
    """The file after a change to the optimiser's state dict."""
    return edited(path, lambda content: change(content["optimizer"]))


def without_arguments(content):
    del content["args"]
    content["arch"] = "net"


def test_another_architecture(path, tmp_path):
    other, _ = timm_run(1, model_kwargs={**ARGS["model_kwargs"], "depth": 3})
    state = other.optimizer.state_dict()
    deeper = edited(path, lambda content: content.update(optimizer=state))
    refused(CheckpointError, deeper, names=("has 44 parameters, the model 32",))


def test_moments_of_other_shapes(path, tmp_path):
    other, _ = timm_run(1, model_kwargs={**ARGS["model_kwargs"], "mlp_ratio": 2.0})
    state = other.optimizer.state_dict()
    wider = edited(path, lambda content: content.update(optimizer=state))
    refused(CheckpointError, wider, names=("groups have 22 and 10 parameters",))
    one, _ = timm_run(1, weight_decay=0.0, model_kwargs={**ARGS["model_kwargs"], "mlp_ratio": 2.0})
    state = one.optimizer.state_dict()
    whole = edited(path, lambda content: content.update(optimizer=state))
    refused(CheckpointError, whole, names=("mlp.fc1.weight has (30, 20)", "(40, 20)"))


@pytest.mark.parametrize("name", ["lamb", "lion", "nadamw", "sgdw"])
def test_another_optimiser(name, tmp_path):
    _, path = timm_file(tmp_path, opt=name, model_ema=False, clip_grad=None)
    refused(CheckpointError, path, names=(f"opt = {name}",))
    bare = edited(path, without_arguments)
    said = refused(CheckpointError, bare, given=ASKED, recipe=RECIPE)
    assert "none of torch's AdamW, Adam and SGD" in said


def test_options_that_no_recipe_says(path):
    def amsgrad(state):
        for group in state["param_groups"]:
            group["amsgrad"] = True

    refused(CheckpointError, changed(path, amsgrad), names=("amsgrad = True",))
    for option, value in {
        "clip_mode": "agc", "lr_k_decay": 0.5, "sched": "poly", "lr_noise": [0.4, 0.9],
        "bce_pos_weight": 0.2, "layer_decay": 0.7, "cooldown_epochs": 10,
    }.items():  # fmt: skip
        other = edited(path, lambda content, o=option, v=value: setattr(content["args"], o, v))
        refused(CheckpointError, other, names=(option,))


def test_groups_that_are_too_many_or_unknown(path, tmp_path):
    model = timm.create_model(ARGS["model"], num_classes=7, **ARGS["model_kwargs"]).double()
    optimizer = timm.optim.create_optimizer_v2(
        model, "adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.7
    )
    state = optimizer.state_dict()
    scaled = edited(path, lambda content: content.update(optimizer=state))
    refused(CheckpointError, scaled, names=(f"{len(state['param_groups'])} groups", "lr_scale"))

    def move(state):
        first, second = state["param_groups"]
        second["params"].insert(0, first["params"].pop())

    said = refused(CheckpointError, changed(path, move))
    assert "groups have 21 and 11 parameters" in said
    assert "22 and 10" in said

    def halve(state):
        state["param_groups"][0]["betas"] = (0.5, 0.9)

    refused(CheckpointError, changed(path, halve), names=("differ in betas",))

    def both(state):
        state["param_groups"][0]["weight_decay"] = 0.01

    refused(CheckpointError, changed(path, both), names=("both groups", "22 and 10 parameters"))


def every(name, value):
    """A change of an entry of every group."""

    def change(optimizer):
        for group in optimizer["param_groups"]:
            group[name] = value(group)

    return change


def shares_a_parameter(optimizer):
    first, second = optimizer["param_groups"]
    second["params"][0] = first["params"][0]


DAMAGED = {
    "by names": (
        lambda optimizer: optimizer.update(state={"head.weight": optimizer["state"][0]}),
        "keeps its state under 'head.weight.step', not under a number",
    ),
    "twice": (shares_a_parameter, "a parameter is in two groups of the optimiser; the file is damaged"),
    "in no group": (
        lambda optimizer: optimizer["state"].update({99: optimizer["state"][0]}),
        "a state of parameter 99, which is in none of its groups",
    ),
    "in none": (every("params", lambda group: "all"), "does not say which parameters are in it"),
    "too few names": (
        every("param_names", lambda group: ["x"]),
        "has 22 parameters and 1 names of such",
    ),
    "other names": (
        every("param_names", lambda group: [f"x{index}" for index in group["params"]]),
        "the optimiser names x0, which is no parameter of the model",
    ),
    "one name": (
        every("param_names", lambda group: ["head.bias"] * len(group["params"])),
        "a parameter is in two groups of the optimiser by its name",
    ),
    "other entries": (
        lambda optimizer: optimizer["state"][0].update(acc_delta=torch.ones(2)),
        "keeps acc_delta of cls_token; it is none of torch's AdamW, Adam and SGD",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_an_optimiser_that_contradicts_itself(path, case):
    change, said = DAMAGED[case]
    assert said in refused(CheckpointError, changed(path, change))


def test_two_rules_that_both_fit_are_named():
    model = {"a.weight": (4, 4), "token": (4, 4)}
    state = {index: {"exp_avg": Stored.of(np.zeros((4, 4)))} for index in (0, 1)}
    groups = tuple(Group({"lr": 1.0, "weight_decay": 0.0}, (index,), None) for index in (0, 1))
    said = error(CheckpointError, lambda: assign(OptimizerState(groups, state), model))
    assert "parameter 0 is" in said
    assert "a.weight" in said
    assert "token" in said
    # without moments and decay they are alike
    assert assign(OptimizerState(groups, {}), model).keys() == {0, 1}
    strong = (Group({"weight_decay": 0.1}, (0,), None), groups[1])
    assert assign(OptimizerState(strong, state), model) == {0: "a.weight", 1: "token"}


def test_what_a_trainer_does_that_is_not_carried_on(tmp_path):
    _, folder = trainer_folder(tmp_path, **OPTIONS["linear"])
    for name, value, said in (
        ("optim", "adafactor", "optim = adafactor in training_args.bin"),
        ("lr_scheduler_type", "polynomial", "expected one of linear, cosine, constant"),
        ("lr_scheduler_kwargs", {"num_cycles": 2}, "without lr_scheduler_kwargs"),
    ):
        other = tmp_path / name / folder.name
        shutil.copytree(folder, other)
        arguments = torch.load(folder / "training_args.bin", weights_only=False)
        setattr(arguments, name, value)
        torch.save(arguments, other / "training_args.bin")
        refused(CheckpointError, other, names=(said,))
    state, config = folder / "trainer_state.json", folder / "config.json"
    before = state.read_text()
    state.write_text(before.replace('"max_steps": 12', '"max_steps": 13'))
    refused(CheckpointError, folder, names=("max_steps = 13", "not whole epochs of 3 steps"))
    state.write_text(before)
    kind = {"problem_type": "multi_label_classification"}
    config.write_text(json.dumps({**json.loads(config.read_text()), **kind}))
    refused(CheckpointError, folder, names=("problem_type = multi_label_classification",))


def test_a_missing_moment(path):
    said = refused(CheckpointError, changed(path, lambda state: state["state"][3].pop("exp_avg_sq")))
    assert "has no exp_avg_sq: Adam would start cold; give --cold" in said
    fresh = changed(path, lambda state: state["state"].pop(3))
    assert "Adam would start cold" in refused(CheckpointError, fresh)
    run = read_foreign(fresh, cold=True)
    (name,) = [name for name, value in run.state.moments["exp_avg"].items() if not value.any()]
    assert any("start cold" in note and name in note for note in run.notes)


def test_updates_that_disagree(path, tmp_path):
    def less(state):
        state["state"][4]["step"] -= 1

    refused(CheckpointError, changed(path, less), names=("had 8 updates", "9; parameters"))
    _, folder = trainer_folder(tmp_path, **OPTIONS["linear"])
    state = folder / "trainer_state.json"
    state.write_text(state.read_text().replace('"global_step": 7', '"global_step": 6'))
    refused(CheckpointError, folder, names=("done 7 updates", "say 6"))
    refused(CheckpointError, path, steps_per_epoch=4, names=("steps_per_epoch = 4", "9 updates"))


@pytest.mark.parametrize(
    "fields",
    [{"weight_decay": 0.1}, {"learning_rate": 1e-3}, {"optimizer": "adam"}, {"beta2": 0.95},
     {"clip_norm": None}, {"ema": 0.99}, {"label_smoothing": 0.0}, {"epochs": 7}, {"seed": 1},
     {"schedule": "linear"}, {"batch_size": 8}, {"dtype": "float32"}],
    ids=str,
)  # fmt: skip
def test_a_recipe_that_is_not_the_files(path, run, fields):
    ((name, value),) = fields.items()
    said = refused(CheckpointError, path, recipe=Recipe(**fields), names=("changed recipe", name))
    assert read_foreign(path, recipe=Recipe(**{name: getattr(run.recipe, name)})).recipe == run.recipe
    assert str(value).replace("None", "null") in said.replace("'", '"')


def test_another_decay_than_the_files(path, run):
    said = refused(CheckpointError, path, recipe=Recipe(weight_decay=0.05, decay="not_vectors"))
    assert "cls_token does not decay" in said
    recipe = Recipe(weight_decay=0.05, decay="matrices")
    assert read_foreign(path, recipe=recipe).recipe == run.recipe


def test_another_schedule_than_the_files(tmp_path):
    _, path = lightning_file(tmp_path)
    fields = {name: getattr(RECIPE, name) for name in RECIPE.model_fields_set}
    other = Recipe(**{**fields, "schedule": "cosine"})
    said = refused(CheckpointError, path, recipe=other, given=ASKED, steps_per_epoch=STEPS)
    assert "learning rate" in said
    assert "schedule cosine" in said
    run = read_foreign(path, recipe=other, given=ASKED)  # it cannot be told without epochs
    assert any("could not be compared" in note for note in run.notes)


def test_what_nobody_states_is_asked_for(path, tmp_path):
    bare = edited(path, without_arguments)
    said = refused(UnstatedError, bare, given=ASKED)
    assert all(name in said for name in ("epochs", "batch_size", "seed", "clip_norm", "ema", "schedule"))
    both = refused(UnstatedError, bare)  # the schema and the recipe in one question
    assert "give --set num_heads=N" in both
    assert said.rpartition(": ")[2] in both
    _, folder = trainer_folder(tmp_path, **OPTIONS["linear"])
    (folder / "training_args.bin").unlink()
    assert "batch_size" in refused(UnstatedError, folder)
    _, sgd = timm_file(tmp_path / "sgd", opt="sgd", clip_grad=None, model_ema=False)
    refused(UnstatedError, sgd, names=("--steps-per-epoch",))


def test_damaged_and_missing_files(path, tmp_path):
    whole = path.read_bytes()
    for share in (0.3, 0.9, 0.999):
        cut = tmp_path / "cut.pth.tar"
        cut.write_bytes(whole[: int(len(whole) * share)])
        refused(WeightsError, cut)
    refused(MissingFileError, tmp_path / "absent.ckpt")
    _, folder = trainer_folder(tmp_path, **OPTIONS["linear"])
    (folder / "optimizer.pt").write_bytes((folder / "optimizer.pt").read_bytes()[:-40])
    refused(WeightsError, folder)
    (folder / "optimizer.pt").unlink()
    refused(MissingFileError, folder, names=("optimizer.pt",))


def test_the_order_of_another_version_is_not_guessed(tmp_path):
    _, folder = trainer_folder(tmp_path, **OPTIONS["linear"])
    config = folder / "config.json"
    text = config.read_text()
    version = text.split('"transformers_version": "')[1].partition('"')[0]
    config.write_text(text.replace(version, "9.0.0"))
    refused(CheckpointError, folder, names=("transformers 9.0.0",))
    config.write_text(text.replace(version, "4.57.0"))
    refused(CheckpointError, folder)  # its MLPs come before its norms: shapes do not fit
    _, folder = trainer_folder(tmp_path / "same", intermediate_size=20)
    refused(CheckpointError, folder, names=("shapes cannot tell", "layernorm_before", "intermediate"))


def test_nothing_that_is_called_by_a_file(path, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    evil = edited(path, lambda content: content["optimizer"].update(evil=Evil()))
    refused(WeightsError, evil, names=("nothing was executed",))
    assert (tmp_path / "executed").exists() is False


def test_what_is_no_training_state(tmp_path, run):
    weights = tmp_path / "weights.safetensors"
    write_weights(weights, run.config, run.state.params)
    assert recognise(weights) is None
    assert recognise(tmp_path) is None
    refused(WeightsError, weights, names=("no training state",))
    _, path = lightning_file(tmp_path)
    empty = edited(path, lambda content: content.update(optimizer_states=[]))
    refused(CheckpointError, empty, given=ASKED, recipe=RECIPE, names=("0 optimisers",))
    two = edited(path, lambda content: content.update(optimizer_states=content["optimizer_states"] * 2))
    refused(CheckpointError, two, given=ASKED, recipe=RECIPE, names=("2 optimisers",))
