"""What no schema has goes from a source to a target that has it too; a constant is said to be one."""

import numpy as np
import pytest

from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from parity.porting.writing.conversion_plan import _of_one_place
from tests.support.hf_models import CLASSES, MLP, SQUARE, build, save


def test_a_norm_that_a_classifier_passes_by_is_kept(tmp_path):
    """CLIPForImageClassification has a norm that it does not use; who takes the tower again does."""
    text = {"hidden_size": 30, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 5,
            "vocab_size": 9}  # fmt: skip
    towers = {"vision_config": {**SQUARE, **MLP}, "text_config": text}
    model = build("CLIPForImageClassification", "CLIPConfig", **towers, **CLASSES)
    done = convert(save(model, tmp_path / "clip"), to="hf", out=tmp_path / "again")
    assert not any("as the source has none" in note for note in done.notes)
    written = read_checkpoint(tmp_path / "again").place.tensors["post_layernorm.weight"].load()
    np.testing.assert_array_equal(written, model.vision_model.post_layernorm.weight.detach().numpy())
    convert(tmp_path / "again", to="parity", out=tmp_path / "own.safetensors")
    done = convert(tmp_path / "own.safetensors", to="hf-clip-classifier", out=tmp_path / "back")
    said = [note for note in done.notes if "as the source has none" in note]
    assert [each.partition(",")[0] for each in said] == [
        "post_layernorm.bias: zeros",
        "post_layernorm.weight: ones",
    ]


def test_a_mask_token_goes_into_the_old_flax_file_and_out_again(tmp_path):
    """Levels of names are apart by another character there."""
    model = build("Dinov2Model", "Dinov2Config", **SQUARE, mlp_ratio=2)
    model.embeddings.mask_token.data.fill_(0.25)
    convert(save(model, tmp_path / "dinov2"), to="hf-flax-dinov2", out=tmp_path / "flax.msgpack")
    given = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu"}
    source = read_checkpoint(tmp_path / "flax.msgpack", given=given)
    convert(source, to="hf", out=tmp_path / "back")
    for path in (tmp_path / "flax.msgpack", tmp_path / "back"):
        tensors = open_container(path).tensors
        (name,) = [each for each in tensors if each.endswith("mask_token")]
        assert (tensors[name].load() == 0.25).all()


@pytest.mark.parametrize(
    ("theirs", "name", "same"),
    [
        ("embeddings.mask_token", "mask_token", True),
        ("embeddings/mask_token", "embeddings.mask_token", True),
        ("decoder.mask_token", "mask_token", False),
        ("text_model.final_layer_norm.weight", "post_layernorm.weight", False),
        ("vision_model.post_layernorm.weight", "post_layernorm.weight", True),
    ],
)
def test_two_tensors_are_the_same_by_their_names(theirs, name, same):
    assert _of_one_place(theirs, name) == same
