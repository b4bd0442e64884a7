"""Low-rank adapters: what is trained, that both twins train the same, and that they merge exactly."""

import json

import jax
import numpy as np
import pytest
import torch
from rich.console import Console

import vit_jax
import vit_jax.train.run
import vit_torch
import vit_torch.train.run
from parity.cli.support.train_options import parse
from parity.porting.models.start import read_start
from parity.runs.compare import compare_runs
from parity.runs.folder import read_manifest, read_run, write_run
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.tiny import TINY, error
from tests.support.tiny_tfds import write_tiny_set
from vit_config import ConfigError, Preprocess, Recipe, write_weights
from vit_config.adapters import adapted_layers, draw_adapters, export_params, untrained_names
from vit_config.job import Job
from vit_config.lora import Lora
from vit_config.parameters import parameters
from vit_jax.leaves import leaves
from vit_jax.train.spread import make_program
from vit_jax.weights import abstract_model
from vit_train.folder.log import read_log

CFG = TINY.replace(depth=2, num_classes=3)
LORA = Lora(rank=2, alpha=3.0, targets=("blocks.*.attn.qkv", "blocks.1.mlp"))
RECIPE = Recipe.from_json("""{
    "epochs": 1, "batch_size": 8, "learning_rate": 0.01, "weight_decay": 0.1, "dtype": "float64",
    "ema": 0.5, "log_every_steps": 1
}""")
ROOMS = {"jax": vit_jax.train.run, "torch": vit_torch.train.run}


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    write_tiny_set(folder)
    rng = np.random.default_rng(0)
    arrays = {n: 0.2 * rng.standard_normal(x.shape) for n, x in parameters(CFG).items()}
    write_weights(folder / "w.safetensors", CFG, arrays, Preprocess())
    job = Job(CFG, RECIPE, "tfds:tiny_rectangles", init=str(folder / "w.safetensors"), lora=LORA)
    return folder, job, arrays


def train(framework, setting, run_dir, **options):
    folder, job, _ = setting
    options |= {"data_dir": folder, "console": Console(quiet=True), "start": read_start(job.init, CFG)}
    if framework == "jax":
        options["devices"] = tuple(jax.local_devices()[:1])
    return ROOMS[framework].train(job, run_dir=run_dir, **options)


@pytest.fixture(scope="module")
def whole(setting, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, {framework: train(framework, setting, folder / framework) for framework in ROOMS}


def in_common(params):
    layout = {leaf.name: leaf for leaf in leaves(abstract_model(CFG))}
    return {name: layout[name].to_common(value) for name, value in params.items()}


def test_both_twins_train_the_same_and_only_what_is_adapted(setting, whole):
    folder, trained = whole
    events = [read_log(folder / name) for name in ROOMS]
    losses = [[event["loss"] for event in each if event["kind"] == "train"] for each in events]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-11)
    ours, theirs = in_common(trained["jax"].params), trained["torch"].params
    changed = {"head.weight", "head.bias"} | {f"{path}.weight" for path in adapted_layers(LORA, CFG)}
    assert len(changed) == 2 + 4
    assert ours.keys() == theirs.keys() == parameters(CFG).keys()
    for name, before in setting[2].items():
        assert error(ours[name], theirs[name]) < 1e-10
        assert np.array_equal(theirs[name], before) == (name not in changed), name


def test_an_interrupted_run_is_the_whole_one(setting, whole, tmp_path):
    for framework, expected in whole[1].items():
        for stop in (2, None):
            broken = train(framework, setting, tmp_path / framework, stop_after=stop)
        for name, value in expected.params.items():
            np.testing.assert_array_equal(broken.params[name], value, err_msg=name)


def test_merged_weights_are_the_adapters_on_their_own_path(setting):
    """W x + b + (alpha / rank) B (A x), as the paper has it, by hooks on the model without them."""
    rng = np.random.default_rng(1)
    drawn = draw_adapters(LORA, CFG, 0)
    drawn = {name: 0.3 * rng.standard_normal(value.shape) for name, value in drawn.items()}
    whole = export_params({**setting[2], **drawn}, LORA, transposed=False)
    images = rng.standard_normal((2, 3, *CFG.image_size))
    model = vit_torch.from_arrays(CFG, setting[2])
    for path in adapted_layers(LORA, CFG):
        a, b = (torch.from_numpy(drawn[f"{path}.lora_{each}"]) for each in "ab")
        model.get_submodule(path).register_forward_hook(
            lambda _, given, out, a=a, b=b: out + LORA.alpha / LORA.rank * (given[0] @ a.T) @ b.T
        )
    with torch.no_grad():
        beside = model(torch.from_numpy(images)).logits
        before = vit_torch.from_arrays(CFG, setting[2])(torch.from_numpy(images)).logits
        inside = vit_torch.from_arrays(CFG, whole)(torch.from_numpy(images)).logits
    assert error(inside, beside) < 1e-14
    assert error(inside, before) > 0.01
    with jax.enable_x64():
        jaxs = vit_jax.from_arrays(CFG, whole)(images.transpose(0, 2, 3, 1)).logits
        assert error(jaxs, beside) < 1e-13


def test_the_first_step_begins_with_the_weights_as_they_are(setting):
    drawn = draw_adapters(LORA, CFG, 7)
    assert not any(value.any() for name, value in drawn.items() if name.endswith("lora_b"))
    assert all(value.any() for name, value in drawn.items() if name.endswith("lora_a"))
    same = export_params({**setting[2], **drawn}, LORA, transposed=False)
    for name, value in setting[2].items():
        np.testing.assert_array_equal(same[name], value)


def test_torch_keeps_no_moments_of_what_is_not_trained(whole):
    path = max((whole[0] / "torch" / "checkpoints").glob("*.pt"))
    content = torch.load(path, weights_only=True)
    names = [n for group in content["optimizer"]["param_groups"] for n in group["param_names"]]
    with_moments = {name for name in names if names.index(name) in content["optimizer"]["state"]}
    assert len(with_moments) == 2 + 2 * 4


def test_half_in_each_framework_is_all_in_one(setting, whole, tmp_path):
    """Adapters, their moments and averages move, and what is frozen is still frozen there."""
    for first, then in (("jax", "torch"), ("torch", "jax")):
        half, moved = tmp_path / first, tmp_path / f"{first} then {then}"
        train(first, setting, half, stop_after=2)
        run = read_run(half)
        assert run.lora == LORA
        assert len(run.state.params) == len(parameters(CFG)) + 2 * len(adapted_layers(LORA, CFG))
        write_run(run, moved, then, read_manifest(half), log=half)
        train(then, setting, moved)
        comparison = compare_runs(whole[0] / first, moved)
        assert comparison.beyond(1e-11) == []
        assert comparison.parts["exp_avg"].distance > 0
        start, end = run.state.params, read_run(moved).state.params
        frozen = {name for name, value in start.items() if np.array_equal(end[name], value)}
        assert frozen == untrained_names(LORA, CFG)


@pytest.mark.parametrize("tensor", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_over_a_mesh_a_step_is_the_same(setting, tensor):
    """Whether heads are split over devices or not; two heads, for three cannot be."""
    cfg = CFG.replace(hidden_size=20, num_heads=2, mlp_dim=28)
    batch = {
        "image": np.random.default_rng(0).standard_normal((8, *cfg.image_size, 3)),
        "label": np.arange(8) % 3,
    }
    losses = []
    for how in ({"devices": jax.local_devices()[:1]}, {"mesh": f"data=-1,fsdp=2,tensor={tensor}"}):
        with jax.enable_x64(True):
            program = make_program(cfg, RECIPE, 4, frozen=untrained_names(LORA, cfg), lora=LORA, **how)
            state = program.fetch(program.initialise())
            rng = np.random.default_rng(1)  # not as they begin: then B is zero, and A learns nothing
            drawn = {n: 0.1 * rng.standard_normal(x.shape) for n, x in sorted(state.params.items())}
            state = program.place_state(state._replace(params=drawn))
            for _ in range(2):
                state, metrics = program.train_step(state, program.place_batch(batch))
            losses.append(program.fetch(state).params | {"loss": program.fetch(metrics)["loss"]})
    alone, spread = losses
    moved = {name for name, value in drawn.items() if error(alone[name], value) > 1e-3}
    assert moved >= {"blocks.0.attn.qkv.lora_a", "blocks.1.mlp.fc2.lora_b"}
    for name, value in alone.items():
        assert error(spread[name], value) < 1e-11, name


def test_what_cannot_be_adapted_is_refused():
    for target in ("blocks.*.norm1", "patch_embed.proj", "head", "block.0"):
        with pytest.raises(ConfigError, match=r"no linear layer has such a path; there are blocks"):
            adapted_layers(Lora(targets=(target,)), CFG)


def test_the_flags(whole):
    flags = ["--lora-rank", "4", "--lora-targets", "blocks.*.mlp", "--model.depth", "2"]
    job = parse(flags, prog="train.py").job
    assert job.lora == Lora(rank=4, targets=("blocks.*.mlp",))
    again = parse(["--config", str(whole[0] / "torch" / "run.json")], prog="train.py").job
    assert again.lora == LORA
    assert json.loads((whole[0] / "jax" / "run.json").read_text())["lora"]["rank"] == 2
    with pytest.raises(ConfigError, match="--lora-alpha goes with --lora-rank"):
        parse(["--lora-alpha", "2"], prog="train.py")
