"""A LoRA of PEFT is merged as PEFT merges it, and never left out in silence."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import refused
from tests.support.hf_models import CLASSES, MLP, SQUARE, build, save
from vit_config import ConfigError, WeightsError

LAYER = "vit.encoder.layer.{}.attention.attention.query"
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 5, "modules_to_save": ["classifier"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    model = build("ViTForImageClassification", "ViTConfig", **SQUARE, **MLP, **CLASSES).float()
    return save(model, tmp_path_factory.mktemp("base") / "vit")


def adapter(folder, config=CONFIG, **tensors):
    """The folder that PEFT writes, of two layers and the classifier."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(3)
    made = {
        "base_model.model.classifier.weight": torch.ones(3, 30),
        "base_model.model.classifier.bias": torch.ones(3),
    }
    for layer in map(LAYER.format, (0, 2)):
        made[f"base_model.model.{layer}.lora_A.weight"] = torch.randn(2, 30, generator=draw)
        made[f"base_model.model.{layer}.lora_B.weight"] = torch.randn(30, 2, generator=draw)
    save_file({**made, **tensors}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("entries", "scales"),
    [
        ({}, (2.5, 2.5)),
        ({"init_lora_weights": "gaussian"}, (2.5, 2.5)),
        ({"use_rslora": True}, (5 / 2**0.5, 5 / 2**0.5)),
        ({"alpha_pattern": {"layer.2.attention.attention.query": 8}}, (2.5, 4.0)),
    ],
)
def test_the_product_is_added(entries, scales, base, tmp_path):
    made = adapter(tmp_path / "lora", {**CONFIG, **entries})
    source = read_checkpoint(base, adapter=made)
    convert(source, to="hf", out=tmp_path / "out")
    parts, before = load_file(made / "adapter_model.safetensors"), load_file(base / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    names = dict(zip(map(LAYER.format, (0, 2)), scales, strict=True))
    assert changed == {f"{name}.weight" for name in names} | {"classifier.weight", "classifier.bias"}
    assert (after["classifier.weight"] == 1).all()
    for name, scale in names.items():
        a, b = (parts[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB")
        expected = before[f"{name}.weight"].double() + scale * (b @ a)
        assert torch.equal(after[f"{name}.weight"], expected.float())
    said = read_checkpoint(tmp_path / "out").hops[-1].done
    assert any("merged the LoRA of lora" in each and "2 layers and 2 tensors" in each for each in said)


def test_one_that_is_not_used_is_an_error(base, tmp_path, capsys):
    """A folder in which an adapter lies beside the base."""
    folder = tmp_path / "both"
    adapter(folder)
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    out = tmp_path / "out.safetensors"
    refused(
        capsys, tmp_path, [f"merge it by --adapter {folder}"], "convert", folder, out, "--to", "parity"
    )
    source = read_checkpoint(folder, adapter=folder)  # the advice followed
    assert np.array_equal(source.arrays["head.bias"].load(), np.ones(3))


@pytest.mark.parametrize(
    ("config", "tensors", "kind", "said"),
    [
        ({"use_dora": True}, {}, ConfigError, "use_dora = True, which is not merged here"),
        (
            {"init_lora_weights": "pissa_niter_4"},
            {},
            ConfigError,
            "'pissa_niter_4', which is not merged",
        ),
        ({"alpha_pattern": {"layer\\..*query": 8}}, {}, ConfigError, "alpha_pattern = .* not merged"),
        ({"peft_type": "IA3"}, {}, ConfigError, "peft_type = 'IA3'; only LORA"),
        ({"r": 3}, {}, WeightsError, "r = 3, lora_alpha = 5, and vit.encoder.layer.0.* has a rank of 2"),
        ({}, {"vit.other.lora_A.weight": (2, 9)}, WeightsError, "one of lora_A and lora_B"),
        ({}, {"a.lora_A.weight": (2, 9), "a.lora_B.weight": (9, 2)}, WeightsError, "no layer there has"),
        ({}, {"a.lora_magnitude_vector": (2,)}, WeightsError, "a part of a LoRA that is not merged"),
        ({}, {"base_model.model.classifier.bias": (4,)}, WeightsError, r"is \(4,\), in .* \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(config, tensors, kind, said, base, tmp_path):
    made = {name: torch.ones(shape) for name, shape in tensors.items()}
    folder = adapter(tmp_path / "lora", {**CONFIG, **config}, **made)
    with pytest.raises(kind, match=said):
        read_checkpoint(base, adapter=folder)


def test_an_adapter_alone_asks_for_its_base(tmp_path):
    with pytest.raises(WeightsError, match=r"not merged into its weights .* give its base"):
        read_checkpoint(adapter(tmp_path / "lora"))
