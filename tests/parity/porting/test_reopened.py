"""What is written is read again before it gets its name, of every kind, as a file and as a folder."""

import json

import numpy as np
import pytest

from parity.cli import main
from parity.porting.dialects import dialects
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing import conversion, reopened
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused
from tests.support.tiny import TINY
from vit_config import WeightsError, write_weights
from vit_config.rope import Rope

CFG = TINY.replace(image_size=(15, 15), patch_size=(5, 5), norm_eps=1e-6)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("reopened") / "own.safetensors"
    write_weights(path, CFG, arrays_of(CFG))
    return path


@pytest.fixture
def other_epsilon(monkeypatch):
    """The header is written of another schema."""
    right = conversion.header_of

    def wrong(target, kind):
        return {
            **right(target, kind),
            "vit.schema": target.state.config.replace(norm_eps=1e-3).to_json(),
        }

    monkeypatch.setattr(conversion, "header_of", wrong)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pth", ".pt", ".bin"])
@pytest.mark.parametrize("dialect", ["parity", "timm-vit", "hf-vit"])
@pytest.mark.usefixtures("other_epsilon")
def test_a_file_that_says_something_else_is_not_written(dialect, suffix, own, tmp_path, capsys):
    out = tmp_path / f"out{suffix}"
    said = [f"{out}: not written, since it could not be read again: norm_eps = 0.001", "1e-06"]
    refused(capsys, tmp_path, said, "convert", own, out, "--to", dialect)


@pytest.mark.usefixtures("other_epsilon")
def test_of_no_dialect_is_a_file_or_folder_written_that_says_something_else(tmp_path):
    """A header is what every one of them has, but for folders of msgpack, HDF5, Equinox: see below."""
    from evidence.dialect_table import sample

    for dialect in (each for each in dialects() if each.writes):
        cfg = sample(dialect)
        write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg))
        for out in ("file.safetensors", "folder")[
            : 1 if dialect.container in ("msgpack", "hdf5", "equinox") else 2
        ]:
            with pytest.raises(WeightsError, match=f"{out}: not written.*norm_eps = .*0.001"):
                convert(tmp_path / "own.safetensors", to=dialect.name, out=tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["own.safetensors"]


@pytest.mark.parametrize(
    ("dialect", "entry", "field"),
    [
        ("hf-vit", {"num_attention_heads": 3}, "num_heads = 5 (its header), but 3 (config.json)"),
        ("hf-flax-vit", {"num_attention_heads": 3}, "num_heads = 3 (config.json), but 5 was written"),
        (
            "timm-vit",
            {"architecture": "vit_tiny_patch16_224"},
            "but 16x16 (config.json)\n",
        ),
        ("timm-vit", {"architecture": "vit_of_tomorrow"}, "'vit_of_tomorrow' is not one of"),
    ],
)
def test_config_files_are_read_without_the_header_too(
    dialect, entry, field, own, tmp_path, capsys, monkeypatch
):
    right = conversion.texts

    def wrong(*arguments):
        config = json.loads(right(*arguments)["config.json"])
        config |= {"model_args": {}} if "architecture" in entry else {}
        return {"config.json": json.dumps({**config, **entry})}

    monkeypatch.setattr(conversion, "texts", wrong)
    said = [f"{tmp_path / 'out'}: not written, since it could not be read again: ", field]
    refused(capsys, tmp_path, said, "convert", own, tmp_path / "out", "--to", dialect)


def test_what_only_the_header_says_is_not_enough_for_a_library(own, tmp_path, capsys, monkeypatch):
    """transformers takes 12 heads where config.json has no entry for them."""
    right = conversion.texts

    def wrong(*arguments):
        config = json.loads(right(*arguments)["config.json"])
        return {"config.json": json.dumps({k: v for k, v in config.items() if k != "layer_norm_eps"})}

    monkeypatch.setattr(conversion, "texts", wrong)
    said = ["norm_eps = 1e-06 (its header), but 1e-12 (config.json)"]
    refused(capsys, tmp_path, said, "convert", own, tmp_path / "out", "--to", "hf-vit")


def test_tensors_are_written_by_names_that_are_read(own, tmp_path, capsys, monkeypatch):
    from parity.porting.writing import conversion_plan

    right = conversion_plan.write

    def wrong(*arguments):
        made = right(*arguments)
        made["blocks.1.norm3.weight"] = made.pop("blocks.1.norm2.weight")
        return made

    monkeypatch.setattr(conversion_plan, "write", wrong)
    said = ["could not be read again", "blocks.1.norm2.weight: missing", "blocks.1.norm3.weight: unex"]
    refused(capsys, tmp_path, said, "convert", own, tmp_path / "out.pth", "--to", "timm-vit")


def test_what_was_there_stays_if_the_new_is_not_read(own, tmp_path, monkeypatch):
    for out in (tmp_path / "out.safetensors", tmp_path / "out"):
        convert(own, to="timm-vit", out=out)
        with monkeypatch.context() as patch:
            patch.setattr(reopened, "compare", _refuse)
            with pytest.raises(WeightsError, match="not written"):
                convert(own, to="hf-vit", out=out, force=True)
        assert read_checkpoint(out).dialect.name == "timm-vit"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.safetensors"]


def _refuse(actual, target):
    raise WeightsError("no")


def test_a_config_file_beside_a_file_is_of_another_model(own, tmp_path):
    """A file is moved elsewhere, and says everything itself."""
    convert(own, to="hf-vit", out=tmp_path / "seven")
    out = tmp_path / "seven" / "none.safetensors"
    convert(own, to="hf-vit", out=out, num_classes=0)
    assert out.exists()


def test_what_a_file_without_a_header_leaves_open_is_stated(own, tmp_path):
    """msgpack holds nothing but tensors."""
    converted = convert(own, to="hf-flax-vit", out=tmp_path / "out.msgpack")
    assert converted.path.exists()


SAPIENS = {
    "hidden_size": 40, "register_tokens": 2, "pos_embed": "none", "norm": "rmsnorm", "qk_norm": True,
    "rope": Rope(kind="centered", pairs="half"), "mlp": "swiglu_packed", "act": "silu", "num_classes": 0,
    "layer_scale": 0.1, "layer_scale_on": "attention", "dynamic_image_size": True,
}  # fmt: skip
TWO_WAYS = {
    "timm-eva": (
        {"class_token": False, "pool": "map", "final_norm": "post_pool", "pool_num_heads": 5},
        {"pool_num_heads": None},
    ),
    "timm-eva-split": ({"num_kv_heads": (1, 1, 1)}, {"num_kv_heads": 1}),
    "hf-sapiens2": ({**SAPIENS, "num_kv_heads": (5, 5, 5)}, {"num_kv_heads": None}),
    "timm-beit": (
        {"pos_embed": "none", "pos_embed_prefix": "none", "rel_pos_bias": True, "k_bias": False},
        {"pos_embed_prefix": "auto"},
    ),
}
"""By dialect: a schema as changes to TINY, and the same function said by default values."""


@pytest.mark.parametrize("to", TWO_WAYS)
def test_what_can_be_said_in_two_ways_is_read_as_the_default(to, tmp_path):
    changes, usual = TWO_WAYS[to]
    cfg = TINY.replace(**changes)
    write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg))
    convert(tmp_path / "own.safetensors", to=to, out=tmp_path / "out")
    read = read_checkpoint(tmp_path / "out")
    assert read.config == cfg.replace(**usual)
    for name, array in arrays_of(cfg).items():
        np.testing.assert_array_equal(read.arrays[name].load(), array)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"architectures": ["ViTForMaskedImageModeling"]}, "mask_token is missing"),
        ({"initializer_range": "wide"}, "wide"),
    ],
)
def test_a_folder_that_its_library_opens_otherwise_is_not_written(
    entry, said, own, tmp_path, capsys, monkeypatch
):
    right = conversion.texts

    def wrong(*of):
        files = right(*of)
        return files | {"config.json": json.dumps(json.loads(files["config.json"]) | entry)}

    monkeypatch.setattr(conversion, "texts", wrong)
    monkeypatch.setattr(conversion, "reopen", lambda *of: None)  # which would see it, too
    out = tmp_path / "out"
    why = [f"{out}: not written, since transformers does not open it: ", said, "--no-open writes it"]
    refused(capsys, tmp_path, why, "convert", own, out, "--to", "hf-vit")
    assert main(["convert", str(own), str(out), "--to", "hf-vit", "--no-open"]) == 0
