"""Files of Equinox: `tests/support/equimo.tar.lz4` is what `save_model` of Equimo 1.1.0 packed."""

import hashlib
import io
import json
import sys
import tarfile

import lz4.frame
import numpy as np
import pytest

from parity.cli import main
from parity.porting.formats import open_container
from parity.porting.formats.budget import budget_of
from parity.porting.formats.equinox import leaves
from parity.porting.formats.lz4 import read_archive
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support import container_files
from tests.support.convert_cases import refused
from tests.support.dialect_proof import twin_logits
from vit_config import WeightsError

PACKED = container_files.EQUIMO
DIGEST = "2c0bb677dbbf083f48edb6ac04a5f73ab4006361821b68cc311f85cf85715992"
IMAGE = [[-1, 1, 3, -1], [-6, 7, 3, -8], [5, 4, -5, 2], [0, -8, 7, 4]]
LOGITS = [1.9112995862960815, -0.9011221528053284]
"""What Equimo's own model makes of the image, in eighths, in float32."""


@pytest.fixture
def folder(tmp_path):
    """The archive, unpacked."""
    (tmp_path / "model").mkdir()
    for name, content in read_archive(PACKED, budget_of(PACKED, [PACKED])).items():
        (tmp_path / "model" / name).write_bytes(content)
    return tmp_path / "model"


def write_metadata(folder, **changes):
    """Change the arguments of the model that metadata.json tells."""
    path = folder / "metadata.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model_config": {**content["model_config"], **changes}}))


def test_without_its_package_an_archive_is_not_called_damaged(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lz4.frame", None)  # importing it fails
    assert main(["inspect", str(PACKED)]) == 2
    assert capsys.readouterr().err == (
        "parity inspect: needs the package lz4; pip install 'vit-parity[all]'\n"
    )


def test_an_archive_is_read_as_equimo_does_and_written_byte_for_byte(folder, tmp_path):
    assert hashlib.sha256((folder / "weights.eqx").read_bytes()).hexdigest() == DIGEST
    images = np.array([[IMAGE]], np.float32) / 8
    for path in (PACKED, folder, folder / "weights.eqx"):
        convert(path, to="parity", out=tmp_path / "own.safetensors", force=True)
        for logits in twin_logits(tmp_path / "own.safetensors", images).values():
            np.testing.assert_allclose(logits[0], LOGITS, rtol=1e-6)
    convert(tmp_path / "own.safetensors", to="equimo", out=tmp_path / "back")
    assert (tmp_path / "back" / "weights.eqx").read_bytes() == (folder / "weights.eqx").read_bytes()
    assert read_checkpoint(tmp_path / "back").config == read_checkpoint(PACKED).config
    told = [json.loads((each / "metadata.json").read_text()) for each in (folder, tmp_path / "back")]
    assert told[0]["model_config"]["mlp_ratio"] == told[1]["model_config"]["mlp_ratio"]


def test_numbers_of_training_are_leaves_too():
    rates = {"drop_path_rate": 0.5, "proj_drop": 0.25, "pos_drop_rate": 0.125}
    actual = {each.name: each.value for each in leaves({"depths": [1, 2], **rates})}
    assert actual["blocks.1.drop_path2.p"] == 0.25
    assert actual["blocks.2.mlp.drop1.p"] == 0.25
    assert actual["pos_drop.p"] == 0.125
    assert actual["pos_drop.inference"] is False


REFUSED = {
    "qkv_bias": (False, "has 37 leaves, Equimo's VisionTransformer of its metadata.json 36"),
    "reg_tokens": (0, "leaves, Equimo's VisionTransformer of its metadata.json"),
    "norm_layer": ("rmsnorm", "norm_layer = 'rmsnorm', only layernorm is read"),
    "block": ("hatblock", "block = 'hatblock', only attentionblock is read"),
    "global_pool": ("max", "metadata.json: global_pool = 'max' is none of avg, token"),
    "num_heads": ([2, 1], "num_heads = [2, 1]: its groups of blocks differ"),
    "eps": (None, "norm_eps"),
    "img_size": (6, "the position table has 5 rows, the image 9 patches"),
    "depths": (None, "tells of no VisionTransformer of Equimo (no depths)"),
    "ffn_layer": ("conv", "damaged or truncated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_arguments_are_refused(name, folder, tmp_path, capsys):
    value, said = REFUSED[name]
    write_metadata(folder, **{name: value})
    refused(capsys, tmp_path, [said], "convert", folder, tmp_path / "out.safetensors", "--to", "parity")


def test_other_leaves_versions_and_archives_are_refused(folder, tmp_path):
    weights, about = folder / "weights.eqx", folder / "metadata.json"
    content, text = weights.read_bytes(), about.read_text()
    begin = content.index(b"\x93NUMPY", 1)
    weights.write_bytes(content[begin:] + content[:begin])  # the same leaves, the first at the end
    with pytest.raises(WeightsError, match=r"has shape \(\); it is no VisionTransformer of"):
        open_container(folder)
    weights.write_bytes(content)
    about.write_text(text.replace('"equimo_version": "1.1.0"', '"equimo_version": "1.0.1"'))
    with pytest.raises(WeightsError, match=r"is of Equimo 1\.0\.1, .* load it by Equimo 1\.1\.0"):
        open_container(folder)
    about.unlink()
    with pytest.raises(WeightsError, match=r"no names, .* put the metadata\.json beside it"):
        open_container(folder)
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("other"))
    (tmp_path / "other.tar.lz4").write_bytes(lz4.frame.compress(packed.getvalue()))
    with pytest.raises(WeightsError, match=r"holds other, not metadata\.json and weights\.eqx"):
        open_container(tmp_path / "other.tar.lz4")
