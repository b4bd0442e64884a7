"""A LoRA of PEFT goes on in a run here, in either framework, and back, exactly."""

import json

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

import vit_jax.train.run
import vit_torch.train.run
from parity.cli import convert as convert_command
from parity.cli.support.job_file import base_job
from parity.cli.support.train_options import parse
from parity.porting.models.lora import read_lora, write_lora
from parity.porting.models.start import read_start, start_lora
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from parity.runs.folder import read_run
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY, error
from tests.support.tiny_tfds import write_tiny_set
from vit_config import ConfigError, Preprocess, Recipe, write_weights
from vit_config.adapters import export_params
from vit_config.job import Job
from vit_config.lora import Lora

CFG = TINY.replace(depth=2, num_classes=3)
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 5, "modules_to_save": ["head"]}
QKV, PROJ = "blocks.{}.attn.qkv", "blocks.{}.attn.proj"


@pytest.fixture
def base(tmp_path):
    """A model by timm's names, and what it is made of."""
    write_weights(tmp_path / "own.safetensors", CFG, arrays_of(CFG), Preprocess())
    convert(tmp_path / "own.safetensors", to="timm", out=tmp_path / "timm")
    return tmp_path / "timm"


def adapter(folder, layers, config=CONFIG, head=True):
    """PEFT's folder with LoRAs of these layers (name: rows), drawn, and a head of ones."""
    draw, D = torch.Generator().manual_seed(3), CFG.hidden_size
    made = {
        "base_model.model.head.weight": torch.ones(3, D),
        "base_model.model.head.bias": torch.ones(3),
    }
    made = made if head else {}
    for name, rows in layers.items():
        made[f"base_model.model.{name}.lora_A.weight"] = torch.randn(2, D, generator=draw)
        made[f"base_model.model.{name}.lora_B.weight"] = torch.randn(rows, 2, generator=draw)
    folder.mkdir()
    save_file(made, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def fused(folder, **options):
    D = CFG.hidden_size
    return adapter(folder, {QKV.format(0): 3 * D, PROJ.format(1): D}, **options)


def test_a_run_goes_on_with_it_and_gives_it_back(base, tmp_path):
    """Before a step, in both frameworks, the run's adapters are PEFT's, bit by bit."""
    folder = fused(tmp_path / "lora")
    write_tiny_set(tmp_path)
    lora = start_lora(str(base), CFG, str(folder))
    assert (lora.rank, lora.alpha, set(lora.targets)) == (2, 5, {QKV.format(0), PROJ.format(1)})
    job = Job(CFG, Recipe(epochs=1, batch_size=8), "tfds:tiny_rectangles", init=str(base), lora=lora)
    flags = ["--init", str(base), "--init-adapter", str(folder), "--data", "tfds:tiny_rectangles"]
    assert parse(flags, prog="parity train").job.lora == lora
    with pytest.raises(ConfigError, match="leave --lora-rank, --lora-alpha and"):
        parse([*flags, "--lora-rank", "8"], prog="parity train")
    before = load_file(folder / "adapter_model.safetensors")
    merged = read_checkpoint(base, adapter=folder).arrays
    for framework, room in (("jax", vit_jax.train.run), ("torch", vit_torch.train.run)):
        run_dir, start = tmp_path / framework, read_start(str(base), CFG, adapter=str(folder))
        assert start.identity["adapter"] == str(folder)
        options = {"devices": None} if framework == "jax" else {}
        room.train(
            job, run_dir=run_dir, data_dir=tmp_path, start=start, stop_after=0,
            console=Console(quiet=True), **options,
        )  # fmt: skip
        again = base_job(None, run_dir / "run.json")
        assert (again.init_adapter, again.lora) == (str(folder), lora)
        run = read_run(run_dir)
        whole = export_params(run.state.params, run.lora, transposed=False)
        for name, array in whole.items():
            assert error(array, merged[name].load()) < 1e-6, name
        out = tmp_path / f"{framework}-lora"
        assert convert_command.main([str(run_dir), str(out), "--to", "timm", "--lora"]) == 0
        after = load_file(out / "adapter_model.safetensors")
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)
        config = json.loads((out / "adapter_config.json").read_text())
        assert (config["r"], config["lora_alpha"], config["modules_to_save"]) == (2, 5, ["head"])


def test_its_head_is_that_of_the_run(base, tmp_path):
    """On a base without a head or of other classes: PEFT's guide to image classification."""
    convert(base, to="timm", out=tmp_path / "bare", num_classes=0)
    convert(base, to="timm", out=tmp_path / "nine", num_classes=9)
    folder = fused(tmp_path / "lora")
    for name in ("bare", "nine"):
        source = str(tmp_path / name)
        job = parse(["--init", source, "--init-adapter", str(folder)], prog="parity train").job
        assert job.model.num_classes == 3
        start = read_start(source, job.model, adapter=str(folder))
        assert (start.arrays["head.weight"] == 1).all()
        assert not any("drawn anew" in each for each in start.account)
        assert job.lora is not None
        write_lora(job.model, job.lora, start.arrays, "timm", tmp_path / f"{name}-back")
        before = load_file(folder / "adapter_model.safetensors")
        after = load_file(tmp_path / f"{name}-back" / "adapter_model.safetensors")
        assert after.keys() == before.keys()
        assert all(torch.equal(after[each], before[each]) for each in before)


@pytest.mark.parametrize(("to", "why"), [("hf", "[^;]+"), ("gguf-clip", "it is read only")])
def test_a_library_without_such_a_model_says_why(to, why, tmp_path):
    with pytest.raises(ConfigError, match=rf"--to {to}: no model of it is this one \({why}\)$"):
        write_lora(CFG.replace(block="parallel"), Lora(), {}, to, tmp_path / "out")


def test_queries_and_keys_apart_are_joined_and_taken_apart(tmp_path, base):
    """transformers has them apart; a smaller rank of another layer is filled with zeros."""
    convert(base, to="hf", out=tmp_path / "hf")
    D, block = CFG.hidden_size, "vit.layers.1.attention"  # the names in memory, not those of the file
    layers = {f"{block}.q_proj": D, f"{block}.v_proj": D, f"{block}.o_proj": D}
    folder = adapter(tmp_path / "lora", layers, head=False)
    source = read_checkpoint(tmp_path / "hf")
    lora, adapters = read_lora(source, folder)
    assert (lora.rank, lora.scale) == (4, 2.5)
    whole = export_params(
        {**{n: a.load() for n, a in source.arrays.items()}, **adapters}, lora, transposed=False
    )
    merged = read_checkpoint(tmp_path / "hf", adapter=folder).arrays
    for name, array in merged.items():
        np.testing.assert_array_equal(whole[name], array.load(), err_msg=name)
    params = {**{name: each.load() for name, each in source.arrays.items()}, **adapters}
    write_lora(source.config, lora, params, "hf", tmp_path / "back")
    before = load_file(folder / "adapter_model.safetensors")
    after = load_file(tmp_path / "back" / "adapter_model.safetensors")
    for name, each in before.items():
        assert torch.equal(after[name], each), name
    again = read_checkpoint(tmp_path / "hf", adapter=tmp_path / "back").arrays
    for name, array in merged.items():
        if not name.startswith("head"):
            np.testing.assert_array_equal(again[name].load(), array.load(), err_msg=name)


@pytest.mark.parametrize(
    ("layers", "config", "said"),
    [
        ({"head": 3}, CONFIG, "head.weight is no linear layer before the head; merge it"),
        ({QKV.format(0): 90, PROJ.format(0): 30}, {**CONFIG, "alpha_pattern": {"proj": 7}}, "same"),
        ({QKV.format(0): 90}, {**CONFIG, "use_dora": True}, "use_dora"),
    ],
)  # fmt: skip
def test_what_no_run_trains_is_refused(layers, config, said, base, tmp_path):
    folder = adapter(tmp_path / "lora", layers, config, head=False)
    with pytest.raises(ConfigError, match=said):
        read_lora(read_checkpoint(base), folder)
