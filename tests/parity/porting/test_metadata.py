"""Pixels, names of classes and licence: each goes along, whether the others are known or not."""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.cli import main
from parity.measure.redraw import redraw
from parity.porting.formats.metadata import Metadata
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.tiny import TINY
from vit_config import ConfigError, Preprocess, ViTConfig, WeightsError, write_weights
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

CFG = TINY.replace(num_classes=3, act="gelu_tanh")
NAMES = ("tench", "crane", "crane, a bird")
PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), interpolation="bilinear", crop_mode="squash")


def own(path: Path, preprocess: Preprocess | None, cfg: ViTConfig = CFG) -> Path:
    """A random model in the project's own file."""
    arrays = {n: redraw(n, p.kind, p.shape, seed=0) for n, p in parameters(cfg).items()}
    write_weights(path, cfg, {n: each.astype(np.float32) for n, each in arrays.items()}, preprocess)
    return path


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A folder of transformers whose config.json names the classes, and cannot infer more."""
    path = own(tmp_path / "own.safetensors", PIXELS.replace(class_names=NAMES))
    folder = convert(path, to="hf-vit", out=tmp_path / "unknown").path
    (folder / "preprocessor_config.json").unlink()
    return without_header(folder / "model.safetensors")


def without_header(path: Path) -> Path:
    from safetensors.numpy import load_file, save_file

    save_file(load_file(path), path, metadata={"format": "pt"})
    return path.parent


def labels(folder: Path) -> list[str]:
    return list(json.loads((folder / "config.json").read_text())["id2label"].values())


@pytest.mark.parametrize(("to", "out"), [("timm", "timm"), ("parity", "own.pth"), ("google", "g.npz")])
def test_names_go_along_without_pixels(unknown: Path, to: str, out: str, tmp_path: Path) -> None:
    """There and back to transformers; no default of a library's slips in as if somebody had said it."""
    source = read_checkpoint(unknown)
    assert (source.preprocess, source.class_names) == (None, NAMES)
    there = convert(source, to=to, out=tmp_path / out).path
    checkpoint = read_checkpoint(there)
    assert (checkpoint.preprocess, checkpoint.class_names) == (None, NAMES)
    back = convert(checkpoint, to="hf", out=tmp_path / "back").path
    assert labels(back) == list(NAMES)
    assert not (back / "preprocessor_config.json").exists()
    assert labels(convert(checkpoint, to="hf", out=tmp_path / "two", num_classes=2).path) == [
        "LABEL_0",
        "LABEL_1",
    ]


def test_timm_names_them_without_any_header(unknown: Path, tmp_path: Path) -> None:
    there = convert(unknown, to="timm", out=tmp_path / "timm", license="mit").path
    checkpoint = read_checkpoint(without_header(there / "model.safetensors"))
    assert (checkpoint.class_names, checkpoint.license) == (NAMES, "mit")
    assert checkpoint.preprocess_origin == "config files"  # what timm takes where nothing is said


def test_inspect_shows_them(unknown: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inspect.json"
    assert main(["inspect", str(unknown), "--depth", "0", "--json", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "classes 3: tench, crane, crane, a bird" in out
    assert "preprocessing unknown" in out
    content = json.loads(path.read_text())
    assert (content["preprocess"], content["class_names"]) == (None, list(NAMES))


def test_pixels_from_the_user_and_names_from_the_file(unknown: Path) -> None:
    loaded = load(unknown, framework="torch", preprocess=PIXELS)
    assert loaded.preprocess == PIXELS.replace(class_names=NAMES)
    (prediction,) = loaded.predict(np.zeros((21, 15, 3), np.uint8), k=1)
    assert prediction[0].label in NAMES
    given = PIXELS.replace(class_names=("a", "b", "c"))
    assert read_checkpoint(unknown, preprocess=given).class_names == ("a", "b", "c")
    with pytest.raises(WeightsError, match="2 class names, but num_classes = 3; give --preprocess"):
        read_checkpoint(unknown, preprocess=PIXELS.replace(class_names=("a", "b")))


def test_class_names_alone_say_nothing_of_pixels(unknown: Path, tmp_path: Path) -> None:
    """They are what a message asks for where a file has too many or too few."""
    path = own(tmp_path / "own2.safetensors", PIXELS.replace(class_names=NAMES))
    names = tmp_path / "names.json"
    names.write_text('{"class_names": ["a", "b", "c"]}')
    for given in (Preprocess(class_names=("a", "b", "c")), Preprocess.load(names)):
        checkpoint = read_checkpoint(path, preprocess=given)
        assert checkpoint.preprocess == PIXELS.replace(class_names=("a", "b", "c"))
        assert checkpoint.preprocess_origin == "its header"
        assert read_checkpoint(unknown, preprocess=given).preprocess is None
    assert read_checkpoint(unknown, preprocess=Preprocess()).preprocess is not None


def test_what_a_header_leaves_open_config_files_may_say(unknown: Path, tmp_path: Path) -> None:
    path = own(tmp_path / "plain.safetensors", None)
    folder = convert(path, to="hf-vit", out=tmp_path / "plain").path
    config = json.loads((folder / "config.json").read_text())
    entries = {"id2label": dict(enumerate(NAMES)), "label2id": {n: i for i, n in enumerate(NAMES)}}
    (folder / "config.json").write_text(json.dumps(config | entries))
    assert read_checkpoint(folder).class_names == NAMES
    sealed = convert(unknown, to="hf-vit", out=tmp_path / "sealed").path
    (sealed / "config.json").write_text(
        (sealed / "config.json").read_text().replace("tench", "goldfish")
    )
    with pytest.raises(WeightsError, match=r"class_names = \('tench'.*header\), but \('goldfish'"):
        read_checkpoint(sealed)
    assert read_checkpoint(
        sealed, preprocess=PIXELS.replace(class_names=("a", "b", "c"))
    ).class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    "metadata",
    [
        Metadata(),
        Metadata(class_names=NAMES),
        Metadata(pixels=PIXELS),
        Metadata(pixels=PIXELS, class_names=NAMES, license="mit"),
    ],
    ids=lambda metadata: "-".join(name for name, value in metadata if value is not None),
)
def test_a_header_says_each_once(metadata: Metadata) -> None:
    header = metadata.to_header()
    assert Metadata.from_header(header, where="it") == metadata
    assert sum("tench" in text for text in header.values()) == (metadata.class_names is not None)
    assert Metadata.from_header({}, where="it") is None
    assert Metadata.of(metadata.preprocess) == metadata or metadata.pixels is None


@pytest.mark.parametrize("names", ["", "[1]", "3", '"tench"'])
def test_a_damaged_header_is_one_line(names: str) -> None:
    with pytest.raises(ConfigError, match=r"it: vit\.class_names") as caught:
        Metadata.from_header({"vit.preprocess": "null", "vit.class_names": names}, where="it")
    assert "\n" not in str(caught.value)


def test_names_are_not_said_twice() -> None:
    with pytest.raises(ConfigError, match=r"build it with Metadata\.of"):
        Metadata(pixels=PIXELS.replace(class_names=NAMES))
