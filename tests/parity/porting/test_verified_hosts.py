"""A tower inside of a larger model is verified by the module that this model makes for it, alone."""

from dataclasses import replace

import pytest

from parity.porting.formats import Stored
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.verification.verified import convert_verified
from tests.support.hf_models import save, transformers
from tests.support.hosts import DINOV2, HOSTS, build

SAMPLE = (
    "LLaVA on CLIP",
    "Video-LLaVA",
    "TrOCR",
    "Depth Anything",
    "BeitForSemanticSegmentation",
    "pi0",
    "OWL-ViT",
    "CLIPSeg",
)
"""A language model, two towers of one kind, an encoder and a decoder, a backbone, a body, a config
within a config, and pairs of towers in a model, read without and with the pair's projection."""
REST = pytest.mark.exhaustive
EVERY = [pytest.param(name, marks=() if name in SAMPLE else REST) for name in HOSTS]


@pytest.mark.filterwarnings("ignore")  # of the libraries about themselves
@pytest.mark.parametrize("host", EVERY)
def test_the_source_is_its_own_module(host, tmp_path):
    saved = save(build(host), tmp_path / "host")
    source = read_checkpoint(saved, part=HOSTS[host].part)
    assert source.dialect.name == HOSTS[host].dialect
    done = convert_verified(source, to="hf", out=tmp_path / "tower").verification
    rows = {(row.what, row.ran_in): row for row in done.rows}
    assert rows["source", "transformers"].passed, done.not_run
    assert done.passed


def test_another_tensor_of_the_tower_is_seen(tmp_path):
    """The module computes with what lies in the file: a tower that is not read right is not equal."""
    source = read_checkpoint(save(build("TrOCR"), tmp_path / "host"))
    name = "blocks.1.mlp.fc2.weight"
    array = source.arrays[name].load().copy()
    array[0, 0] += 1
    wrong = replace(source, arrays={**source.arrays, name: Stored.of(array)})
    done = convert_verified(wrong, to="parity", out=tmp_path / "own.safetensors").verification
    assert "source run in transformers: off by" in done.problem


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"apply_layernorm": False}, "maps come before the final norm (apply_layernorm = false)"),
        ({"out_indices": [1, 2]}, "maps end with block 2 of 3 (out_indices = [1, 2])"),
        ({"out_indices": [-2]}, "maps end with block 2 of 3 (out_indices = [-2])"),
        ({"out_indices": [1, 3]}, None),
    ],
)
def test_what_a_backbone_gives_otherwise_is_said(entries, said, tmp_path):
    config = {name: value for name, value in DINOV2.items() if name not in ("model_type", "out_indices")}
    model = transformers.Dinov2Backbone(transformers.Dinov2Config(**config, **entries))
    checkpoint = [
        note for note in read_checkpoint(save(model, tmp_path / "saved")).notes if "maps" in note
    ]
    assert [said in note for note in checkpoint] == ([True] if said else [])
    body = transformers.Dinov2Model(transformers.Dinov2Config(**config, **entries))
    notes = read_checkpoint(save(body, tmp_path / "body")).notes
    assert not any("maps" in note for note in notes)
