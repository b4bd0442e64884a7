"""A LoRA of PEFT is merged as PEFT merges it, and never left out in silence."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.porting.dialects import find_dialects
from parity.porting.reading.adapters import head_of
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import refused
from tests.support.hf_models import CLASSES, MLP, SQUARE, build, save
from vit_config import ConfigError, WeightsError
from vit_config.errors import MissingFileError

LAYER = "vit.encoder.layer.{}.attention.attention.query"
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 5, "modules_to_save": ["classifier"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    model = build("ViTForImageClassification", "ViTConfig", **SQUARE, **MLP, **CLASSES).float()
    return save(model, tmp_path_factory.mktemp("base") / "vit")


def adapter(folder, config=CONFIG, classes=3, **tensors):
    """The folder that PEFT writes, of two layers and the classifier."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(3)
    made = {
        "base_model.model.classifier.weight": torch.randn(classes, 30, generator=draw).round() + 1,
        "base_model.model.classifier.bias": torch.ones(classes),
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
    assert torch.equal(after["classifier.weight"], parts["base_model.model.classifier.weight"])
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


@pytest.fixture(scope="module")
def bases(base, tmp_path_factory):
    """The base with its three classes, without a head, and both as this project wrote them, by kind."""
    folder = tmp_path_factory.mktemp("bases")
    bare = build("ViTModel", "ViTConfig", **SQUARE, **MLP).float()
    bare.load_state_dict(
        {n.removeprefix("vit."): t for n, t in load_file(base / "model.safetensors").items()},
        strict=False,
    )
    found = {"classes": base, "bare": save(bare, folder / "bare")}
    for kind in ("classes", "bare"):
        convert(found[kind], to="hf", out=folder / f"{kind}_again")
        found[f"{kind}_again"] = folder / f"{kind}_again"
    return found


@pytest.mark.parametrize("kind", ["classes", "bare", "classes_again", "bare_again"])
def test_a_head_of_its_own_is_the_head_whatever_the_base_has(kind, bases, tmp_path):
    """PEFT's guide to image classification: modules_to_save, on a base of other classes or of none."""
    made = adapter(tmp_path / "lora", classes=4)
    convert(read_checkpoint(bases[kind], adapter=made), to="hf", out=tmp_path / "out")
    parts = load_file(made / "adapter_model.safetensors")
    source = read_checkpoint(tmp_path / "out")
    assert (source.config.num_classes, source.config.pool, source.class_names) == (4, "class", None)
    for leaf in ("weight", "bias"):
        own = source.arrays[f"head.{leaf}"].load()
        assert np.array_equal(own, parts[f"base_model.model.classifier.{leaf}"].numpy())
    assert any("a head of 4 classes" in each for each in source.hops[-1].done)
    a, b = (parts[f"base_model.model.{LAYER.format(0)}.lora_{part}.weight"].double() for part in "AB")
    before = load_file(bases[kind] / "model.safetensors")
    name = next(each for each in before if each.endswith("layer.0.attention.attention.query.weight"))
    query = source.arrays["blocks.0.attn.qkv.weight"].load()[:30]
    assert np.array_equal(query, (before[name].double() + 2.5 * (b @ a)).float().numpy())


def test_the_head_of_a_dinov2_changes_what_it_pools(tmp_path):
    """Its classifier sees the class token beside the mean of the patches; a bare one pools the first."""
    model = build("Dinov2Model", "Dinov2Config", **SQUARE, mlp_ratio=2).float()
    folder = save(model, tmp_path / "dinov2")
    convert(folder, to="hf", out=tmp_path / "again")
    made = adapter(tmp_path / "lora", **{"base_model.model.classifier.weight": torch.ones(3, 60)})
    parts = load_file(made / "adapter_model.safetensors")
    kept = {name.replace("vit.", "dinov2."): each for name, each in parts.items()}
    save_file(kept, made / "adapter_model.safetensors")
    for base in (folder, tmp_path / "again"):
        assert read_checkpoint(base).config.pool == "class"
        source = read_checkpoint(base, adapter=made)
        assert (source.config.num_classes, source.config.pool) == (3, "class_mean")


def test_of_several_adapters_one_is_named(base, tmp_path):
    """PEFT writes further adapters into folders of that of the first."""
    folder = adapter(tmp_path / "lora")
    adapter(folder / "second")
    assert "left out the other adapters in lora: second" in read_checkpoint(base, adapter=folder).notes
    (folder / "adapter_config.json").unlink()
    with pytest.raises(MissingFileError, match="give one of those in it: second"):
        read_checkpoint(base, adapter=folder)
    assert read_checkpoint(base, adapter=folder / "second").notes


def test_a_model_with_adapters_in_memory_is_merged_by_peft(base):
    """By a copy: the user's model keeps its adapters."""

    class PeftModel(torch.nn.Module):
        """Stands for PEFT's, whose merge_and_unload changes it and returns the model inside."""

        __module__ = "peft.peft_model"

        def __init__(self, model):
            super().__init__()
            self.model = model

        def merge_and_unload(self, *, safe_merge):
            with torch.no_grad():
                self.model.classifier.bias += safe_merge
            return self.model

    model = build("ViTForImageClassification", "ViTConfig", **SQUARE, **MLP, **CLASSES)
    before = model.classifier.bias.detach().clone()
    source = read_checkpoint(PeftModel(model))
    assert np.array_equal(source.arrays["head.bias"].load(), (before + 1).numpy())
    assert torch.equal(model.classifier.bias, before)


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
        ({}, {"base_model.model.classifier.bias": (4,)}, WeightsError, r"head.bias: shape \(4,\) in"),
        ({}, {"vit.layernorm.bias": (4,)}, WeightsError, r"is \(4,\), in .* \(30,\)"),
        ({"use_bdlora": {"nblocks": 2}}, {}, ConfigError, "use_bdlora = .* not merged here"),
        (
            {},
            {f"{LAYER.format(1)}.lora_A.other.weight": (2, 30)},
            WeightsError,
            "several adapters, one w",
        ),
        (
            {},
            {"attn.base_layer.out_proj.lora_A.weight": (2, 30)},
            WeightsError,
            "torch's MultiheadAttention, whose out_proj PEFT adds twice",
        ),
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


def test_a_name_that_no_table_has_is_no_head():
    (dialect,) = find_dialects("parity-nnx")
    assert head_of("nothing.weight", dialect) == ""
