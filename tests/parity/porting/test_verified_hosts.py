"""A tower inside of a larger model is verified by the module that this model makes for it, alone."""

from dataclasses import replace
from typing import Any

import pytest

from parity.porting.checkpoint import read_checkpoint
from parity.porting.formats import Stored
from parity.porting.verification.verified import convert_verified
from tests.support.hf_models import MLP, SQUARE, redraw, save, transformers

TOWER = {**SQUARE, **MLP}
CLIP = {**TOWER, "model_type": "clip_vision_model"}
DINOV2 = {**SQUARE, "model_type": "dinov2", "mlp_ratio": 2, "out_indices": [0, 1, 2, 3],
          "reshape_hidden_states": False}  # fmt: skip
WORDS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20,
         "vocab_size": 30, "pad_token_id": 0}  # fmt: skip
LLAMA = {**WORDS, "model_type": "llama", "num_key_value_heads": 1, "head_dim": 8}
NECK = {"neck_hidden_sizes": [8] * 4, "fusion_hidden_size": 8}


def _llava() -> Any:
    config = transformers.LlavaConfig(vision_config=CLIP, text_config=LLAMA, image_token_index=20)
    return transformers.LlavaForConditionalGeneration(config)


def _video_llava() -> Any:
    config = transformers.VideoLlavaConfig(
        vision_config=CLIP, text_config=LLAMA, image_token_index=20, video_token_index=21
    )
    return transformers.VideoLlavaForConditionalGeneration(config)


def _captions() -> Any:
    decoder = transformers.TrOCRConfig(
        vocab_size=30, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=20,
        max_position_embeddings=8,
    )  # fmt: skip
    kind = transformers.VisionEncoderDecoderConfig
    config = kind.from_encoder_decoder_configs(transformers.ViTConfig(**TOWER), decoder)
    return transformers.VisionEncoderDecoderModel(config)


def _pair() -> Any:
    kind = transformers.VisionTextDualEncoderConfig
    words = transformers.BertConfig(**WORDS)
    config = kind.from_vision_text_configs(transformers.ViTConfig(**TOWER), words)
    return transformers.VisionTextDualEncoderModel(config)


def _depth() -> Any:
    config = transformers.DepthAnythingConfig(
        backbone_config=DINOV2, patch_size=5, reassemble_hidden_size=30, head_hidden_size=8, **NECK
    )
    return transformers.DepthAnythingForDepthEstimation(config)


def _segmentation() -> Any:
    config = transformers.BeitConfig(
        **TOWER, out_indices=[0, 1, 2, 3], pool_scales=[1], use_auxiliary_head=False
    )
    return transformers.BeitForSemanticSegmentation(config)


HOSTS = {
    "a language model": (_llava, "hf-clip-vision", None),
    "two towers of one kind": (_video_llava, "hf-clip-vision", "image_tower"),
    "an encoder and a decoder": (_captions, "hf-vit", None),
    "a pair": (_pair, "hf-vit", None),
    "a backbone": (_depth, "hf-dinov2", None),
    "a body": (_segmentation, "hf-beit-trunk", "beit"),
}


@pytest.mark.filterwarnings("ignore")  # of the libraries about themselves
@pytest.mark.parametrize("host", HOSTS)
def test_the_source_is_its_own_module(host, tmp_path):
    make, dialect, part = HOSTS[host]
    saved = save(redraw(make()), tmp_path / "host")
    source = read_checkpoint(saved, part=part)
    assert source.dialect.name == dialect
    done = convert_verified(source, to="hf", out=tmp_path / "tower").verification
    rows = {(row.what, row.ran_in): row for row in done.rows}
    assert rows["source", "transformers"].passed, done.not_run
    assert done.passed


def test_another_tensor_of_the_tower_is_seen(tmp_path):
    """The module computes with what lies in the file: a tower that is not read right is not equal."""
    source = read_checkpoint(save(redraw(_captions()), tmp_path / "host"))
    name = "blocks.1.mlp.fc1.weight"
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
    found = [note for note in read_checkpoint(save(model, tmp_path / "saved")).notes if "maps" in note]
    assert [said in note for note in found] == ([True] if said else [])
    body = transformers.Dinov2Model(transformers.Dinov2Config(**config, **entries))
    notes = read_checkpoint(save(body, tmp_path / "body")).notes
    assert not any("maps" in note for note in notes)
