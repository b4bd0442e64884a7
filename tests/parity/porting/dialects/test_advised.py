"""The converter's advice, followed on models that it does not fit, makes no other function."""

import re
from importlib import import_module

import pytest
import torch
import transformers

import vit_torch
from parity.cli import main
from parity.measure.tolerance import FLOAT64
from parity.porting.dialects import find_dialects
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.installed import SINGLE
from tests.support.hf_models import MLP, SQUARE, build, save
from tests.support.tiny import error
from vit_config import WeightsError
from vit_config.errors import OtherModelError

KINDS = {
    "FlavaImage": ("hf-vit", {}),
    "DPT": ("hf-vit", {"use_batch_norm_in_fusion_residual": False}),
    "GitVision": ("hf-clip-vision", {}),
    "PaddleOCRVision": (None, {}),
    "Cosmos3EdgeVision": (None, {"num_patches": 9}),
    "AST": (None, {"max_length": 48, "num_mel_bins": 32}),
    "VitPoseBackbone": (None, {}),
    "MLCDVision": (None, {}),
}
"""Classes of transformers whose tensors are named as another's, and the dialect that computes the same;
None if none does."""


@pytest.mark.parametrize("name", KINDS)
def test_a_dialect_is_advised_only_where_it_computes_the_same(name, tmp_path):
    dialect, entries = KINDS[name]
    class_name = name if hasattr(transformers, name) else f"{name}Model"
    if not hasattr(transformers, class_name):
        module = f"transformers.models.{name.lower().removesuffix('vision')}"
        setattr(transformers, class_name, getattr(import_module(f"{module}.modeling_git"), class_name))
    sizes = {**SQUARE, "hidden_size": 40, "image_size": 15, **MLP, **entries}
    model = build(class_name, f"{name}Config", **sizes)
    folder = save(model, tmp_path / "tower")
    with pytest.raises(WeightsError) as caught:
        read_checkpoint(folder)
    advice = re.findall(r"--dialect (\S+)", str(caught.value))
    assert advice == ([dialect] if dialect else []), caught.value
    if dialect is None:
        assert isinstance(caught.value, OtherModelError)
        return
    source = read_checkpoint(folder, dialect=dialect)
    assert not any("may compute otherwise" in note for note in source.notes)
    twin = vit_torch.from_arrays(source.config, {n: each.load() for n, each in source.arrays.items()})
    images = torch.randn(2, 3, 15, 15, dtype=torch.float64)
    with torch.no_grad():
        expected = model.double()(images).last_hidden_state
        limit = SINGLE if name == "GitVision" else FLOAT64  # its softmax is of float32
        assert error(twin.double().forward_features(images), expected) <= limit


def test_a_dialect_of_the_users_own_choice_is_noted(tmp_path):
    """The user may know what a config file says that nobody here looked at."""
    folder = save(build("ViTModel", "ViTConfig", **SQUARE, **MLP), tmp_path / "vit")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"vit"', '"our_vit"'))
    with pytest.raises(OtherModelError, match=r"what its code computes of them is not known here$"):
        read_checkpoint(folder)
    said = read_checkpoint(folder, dialect="hf-vit").notes
    assert any(
        "whose model_type is our_vit, a model whose code may compute otherwise" in n for n in said
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["patch_generator.embedder.weight", "blocks.0.norm1.weight"], "RADIO"),
        (["enc_blocks.0.norm1.weight", "dec_blocks.0.norm1.weight"], "DUSt3R or CroCo"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "model.visual."])
def test_what_is_known_and_not_converted_is_refused_by_name(names, said, prefix, tmp_path):
    path = tmp_path / "weights.pth"
    torch.save({f"{prefix}{name}": torch.ones(3, 3) for name in names}, path)
    with pytest.raises(WeightsError, match=said):
        read_checkpoint(path)


SHAPES = {
    "hf-internvl-vision": ({"image_size": (24, 40)}, "no grid of"),
    "hf-data2vec-vision": ({"attention_head_dim": 6}, "attention_head_dim = 6"),
    "vit-pytorch": ({"image_size": (26, 27), "patch_remainder": "crop"}, "patch_remainder = crop"),
    "simple-vit-pytorch": (
        {"image_size": (26, 27), "patch_remainder": "crop"},
        "patch_remainder = crop",
    ),
    "timm-vit": (
        {"image_size": (26, 27), "patch_remainder": "crop", "dynamic_image_size": True},
        "patch_remainder = crop",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_that_a_librarys_code_cannot_run_is_none_of_it(name):
    """Each of them raised in the library's own forward."""
    from evidence.dialect_table import sample

    changes, said = SHAPES[name]
    (dialect,) = find_dialects(name)
    cfg = sample(dialect)
    assert not dialect.problems(cfg)
    assert said in "; ".join(dialect.problems(cfg.replace(**changes)).values())


def test_no_target_is_taken_that_cannot_run(tmp_path, capsys):
    """A DINOv2 for images that are not square was written as an InternVL."""
    entries = {**SQUARE, "mlp_ratio": 2}
    folder = save(build("Dinov2Model", "Dinov2Config", **entries), tmp_path / "dinov2")
    flags = ["--to", "hf", "--image-size", "15x25"]
    assert main(["convert", str(folder), str(tmp_path / "out"), *flags]) == 2
    assert "none of the" in capsys.readouterr().err
