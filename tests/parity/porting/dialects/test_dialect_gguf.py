"""Towers in GGUF, written by llama.cpp's library (`evidence/gguf_towers.py`), beside transformers'."""

import pytest

from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import refused
from tests.support.gguf_towers import TOWERS, build, errors, path_of

UP = b"v.blk.0.ffn_up.weight"
TYPE = len(UP) + 20
"""From the name of a matrix to its type: the number of its axes, and two lengths."""


@pytest.mark.parametrize("name", TOWERS)
def test_tokens_are_those_of_transformers(name, tmp_path):
    _, tokens = build(name)
    distances = errors(path_of(name), tokens, tmp_path / "own.safetensors")
    assert max(distances.values()) <= 1e-12
    out = tmp_path / "out"
    if TOWERS[name].norm:
        convert(path_of(name), to="hf", out=out, dtype="float64")
        assert max(errors(out, tokens, tmp_path / "again.safetensors").values()) <= 1e-12


def test_the_header_says_the_schema():
    checkpoint = read_checkpoint(path_of("CLIP, as older converters wrote LLaVA's"))
    cfg = checkpoint.config
    assert (cfg.act, cfg.norm_eps, cfg.final_norm, cfg.num_heads) == ("quick_gelu", 1e-5, "none", 2)
    assert any("mm.0.weight" in each for each in checkpoint.notes)
    exact = read_checkpoint(path_of("SigLIP"), override={"act": "gelu"})
    assert exact.config.act == "gelu"


REFUSED = {
    "another tower": ((b"idefics3", b"qwen3vl_"), "projector_type = qwen3vl_, whose tower is no plain"),
    "quantised": (8, "is quantised (v.blk.0.ffn_up.weight is of Q8_0), which cannot be undone exactly"),
    "whole numbers": (26, "is quantised (v.blk.0.ffn_up.weight is of type 26)"),
    "version": (
        (b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03"),
        "is of version 50331648 of GGUF; 2 and 3 are read",
    ),
    "no heads": ((b"attention.head_count", b"attention.head_cOunt"), "num_heads"),
    "twice": ((b"v.blk.1.ln1.bias", b"v.blk.0.ln1.bias"), "v.blk.0.ln1.bias is there twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_by_name(name, tmp_path, capsys):
    change, said = REFUSED[name]
    content = path_of("SigLIP, as older converters wrote it").read_bytes()
    if isinstance(change, int):
        at = content.index(UP) + TYPE
        content = content[:at] + bytes([change]) + content[at + 1 :]
    else:
        content = content.replace(*change)
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(content)
    refused(capsys, tmp_path, [said], "convert", path, tmp_path / "out", "--to", "hf")


def test_an_mlp_of_one_width_tells_no_order(tmp_path):
    """Neither of its layers is wider than the other, and converters have named them either way."""
    content = path_of("SigLIP").read_bytes()
    for each in (b"v.blk.0.ffn_up.weight", b"v.blk.0.ffn_down.weight"):
        at = content.index(each) + len(each) + 4
        content = content[:at] + 2 * (8).to_bytes(8, "little") + content[at + 16 :]
    (tmp_path / "square.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=r"v\.blk\.0\.ffn_up\.weight is square: nothing tells which"):
        open_container(tmp_path / "square.gguf")
