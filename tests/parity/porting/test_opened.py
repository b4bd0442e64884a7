"""What the files of a checkpoint state is read once, however many ask for it."""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.measure.redraw import redraw
from parity.porting.dialects import find_dialects
from parity.porting.dialects.records.hf.config import HfSettings
from parity.porting.dialects.records.timm.config import TimmSettings
from parity.porting.fleet.scan import scan
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.opened import open_checkpoint
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.opens import opens
from tests.support.tiny import TINY
from vit_config import Preprocess, ViTConfig, WeightsError, write_weights
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

CFG = TINY.replace(num_classes=3, act="gelu_tanh")
PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), class_names=("a", "b", "c"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    arrays = {n: redraw(n, p.kind, p.shape, seed=0) for n, p in parameters(CFG).items()}
    path = tmp_path / "own.safetensors"
    write_weights(path, CFG, {n: each.astype(np.float32) for n, each in arrays.items()}, PIXELS)
    return path


@pytest.fixture(params=["hf", "timm"])
def folder(request: pytest.FixtureRequest, own: Path, tmp_path: Path) -> Path:
    """A library's folder with a header of ours: both say everything."""
    return convert(own, to=request.param, out=tmp_path / request.param).path


def test_a_conversion_reads_each_side_file_once(folder: Path, tmp_path: Path) -> None:
    with opens() as opened:
        convert(folder, to="parity", out=tmp_path / "out.safetensors")
    beside = {path.name for path in folder.iterdir() if path.suffix == ".json"}
    assert beside
    assert {name: opened[name] for name in beside} == dict.fromkeys(beside, 1)


def test_each_statement_is_parsed_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict]] = []
    schemas: list[str] = []
    for settings in (HfSettings, TimmSettings):
        for name in ("fields", "metadata"):
            usual = getattr(settings, name)
            monkeypatch.setattr(
                settings,
                name,
                lambda self, files, *rest, usual=usual, name=name: (
                    asked.append((name, files)) or usual(self, files, *rest)
                ),
            )
    usual_schema = ViTConfig.from_json.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        ViTConfig,
        "from_json",
        classmethod(
            lambda cls, text, *, where: schemas.append(where) or usual_schema(cls, text, where=where)
        ),
    )
    checkpoint = read_checkpoint(folder)
    convert(checkpoint, to="parity", out=tmp_path / "out.safetensors")
    files = checkpoint.opened.sidecars.contents
    assert [name for name, of in asked if of is files] == ["fields", "metadata"]
    source, written = schemas  # what was written is read again before it gets its name
    assert source == f"{folder}: vit.schema"
    assert ".out.safetensors." in written


def test_a_file_is_opened_once_for_all_its_models(folder: Path) -> None:
    opened = open_checkpoint(folder)
    first = read_checkpoint(opened)
    with opens() as again:
        second = read_checkpoint(opened, license="mit")
    assert not again
    assert (second.config, second.license) == (first.config, "mit")


def test_a_scan_opens_once_what_it_has_to_ask_about(own: Path, tmp_path: Path) -> None:
    bare = tmp_path / "many" / "bare.npz"
    bare.parent.mkdir()
    with np.load(convert(own, to="timm", out=bare).path) as file:
        np.savez(tmp_path / "copy.npz", **dict(file))  # without the header that says everything
    (tmp_path / "copy.npz").replace(bare)
    with opens() as once:
        open_checkpoint(bare)
    with opens() as opened:
        (job,) = scan(bare.parent).manifest.checkpoints
    assert job.status == "ask"
    assert opened[bare.name] == once[bare.name]


def test_what_is_damaged_is_said_when_it_is_asked(folder: Path) -> None:
    """Pixels that the user states stand, whatever the files say; a provenance has no such way out."""
    opened = open_checkpoint(folder)
    opened.header.entries["vit.preprocess"] = "{"
    assert read_checkpoint(opened, preprocess=PIXELS).metadata == Metadata.of(PIXELS)
    opened = open_checkpoint(folder)
    opened.header.entries["vit.provenance"] = json.dumps({"no": "list"})
    with pytest.raises(WeightsError, match="not a list of hops") as caught:
        read_checkpoint(opened)
    assert str(caught.value).startswith(f"{folder}: ")


def test_config_files_of_another_say_nothing(folder: Path) -> None:
    opened = open_checkpoint(folder)
    (other,) = find_dialects("google")
    assert opened.sidecars.fields(other) == {}
    assert opened.sidecars.metadata(other) == Metadata()
