"""Files that were damaged or edited: refused in one line, the same model, or it is said what changed.

`python -m evidence.checkpoint_mutations` runs thousands.
"""

import json
from pathlib import Path

import pytest

from evidence.checkpoint_mutations.__main__ import attack, contradict, every_sample
from evidence.checkpoint_mutations.changes import rewrite
from evidence.checkpoint_mutations.samples import Sample, of_transformers, resaved, write_sample
from parity.porting.dialects import find_dialects
from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from vit_config import ConfigError, WeightsError

KINDS = (
    "parity",
    "hf-vit",
    "hf-flax-vit",
    "timm-vit",
    "deit3",
    "google",
    "big-vision-scan",
    "open-clip",
)
"""Dialects of every kind of file and of config files."""
ALWAYS = ("hf-vit", "google", "hf-flax-vit")
"""One of each kind of file."""


def wrong(verdicts) -> list[str]:
    return [f"{m.kind}, {m.what}: {v.why}" for m, v in verdicts if v.outcome == "WRONG"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.exhaustive) for n in KINDS],
)
def test_no_change_goes_unnoticed(name: str, tmp_path: Path) -> None:
    (inside := tmp_path / "attack").mkdir()
    written = write_sample(find_dialects(name)[0], tmp_path)
    both = [written, resaved(written, tmp_path)] if written.signed else [written]
    for sample in both:
        verdicts = list(attack(sample, 24, 0, inside))
        assert wrong(verdicts) == []
        assert sum(verdict.outcome == "refused" for _, verdict in verdicts) > 8


@pytest.mark.filterwarnings("ignore")  # of the library that saves them
def test_no_change_of_what_transformers_saved_goes_unnoticed(tmp_path: Path) -> None:
    (inside := tmp_path / "attack").mkdir()
    for sample in of_transformers(tmp_path):
        assert wrong(attack(sample, 10, 0, inside)) == [], sample.name


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("hf-vit", ""),
        pytest.param("hf-vit", ".bin", marks=pytest.mark.exhaustive),
        pytest.param("timm-vit", "", marks=pytest.mark.exhaustive),
    ],
)
def test_config_files_that_contradict_a_header_are_refused(name, suffix, tmp_path: Path) -> None:
    (inside := tmp_path / "attack").mkdir()
    sample = write_sample(find_dialects(name)[0], tmp_path, suffix=suffix)
    verdicts = list(contradict(sample, 40, 0, inside))
    assert wrong(verdicts) == []
    assert sum(verdict.outcome == "refused" for _, verdict in verdicts) > 10


EDITS = {
    "hidden_act": "relu",
    "layer_norm_eps": 1e-3,
    "num_attention_heads": 4,
    "image_size": 25,
    "patch_size": 4,
    "qkv_bias": False,
    "intermediate_size": 53,
    "id2label": {str(index): f"other {index}" for index in range(7)},
}


@pytest.mark.parametrize("entry", EDITS)
def test_an_edited_config_is_named(entry: str, tmp_path: Path) -> None:
    sample = write_sample(find_dialects("hf-vit")[0], tmp_path)
    config = json.loads((sample.folder / "config.json").read_text())
    (sample.folder / "config.json").write_text(json.dumps({**config, entry: EDITS[entry]}))
    with pytest.raises(WeightsError, match=r"hf-vit: \w+ = .* \((its header|shapes)\), but .* \(config"):
        read_checkpoint(sample.folder)


def test_edited_preprocessing_is_named(tmp_path: Path) -> None:
    sample = write_sample(find_dialects("hf-vit")[0], tmp_path)
    path = sample.folder / "preprocessor_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "image_mean": [0.1, 0.2, 0.3]}))
    with pytest.raises(
        WeightsError, match=r"mean = \(0.4.* \(its header\), but \(0.1.* give --preprocess"
    ):
        read_checkpoint(sample.folder)
    path.write_text(json.dumps({**content, "do_pad": True}))
    with pytest.raises(WeightsError, match="but config files state what it cannot hold"):
        read_checkpoint(sample.folder)
    path.unlink()  # says nothing
    assert read_checkpoint(sample.folder).preprocess.mean == (0.4, 0.5, 0.25)  # pyright: ignore


# What earlier rounds found


def edited(sample: Sample, file: str, **entries) -> Path:
    path = sample.folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    return sample.folder


@pytest.mark.parametrize(
    ("name", "file", "entries"),
    [
        ("hf-dinov3", "preprocessor_config.json", {"size": {"height": 1.5, "width": 24}}),  # hung
        ("hf-vit", "preprocessor_config.json", {"size": []}),
        ("hf-vit", "config.json", {"architectures": 3}),
        ("hf-vit", "config.json", {"architectures": [1.5]}),
        ("hf-vit", "config.json", {"num_attention_heads": "5"}),
        ("hf-siglip2-vision", "config.json", {"patch_size": 0}),
        ("open-clip", "open_clip_config.json", {"preprocess_cfg": "x"}),
        ("open-clip", "open_clip_config.json", {"preprocess_cfg": {"resize_mode": {}}}),
        ("timm-vit", "config.json", {"label_names": ["one", "two"]}),
    ],
)
def test_entries_of_another_kind_are_one_line(name, file, entries, tmp_path: Path) -> None:
    folder = edited(resaved(write_sample(find_dialects(name)[0], tmp_path), tmp_path), file, **entries)
    try:
        checkpoint = read_checkpoint(folder, dialect=name)
    except (ConfigError, WeightsError) as error:
        assert str(folder) in str(error)
        assert "\n" not in str(error)
    else:
        assert file == "preprocessor_config.json"
        assert checkpoint.preprocess is None


def test_types_that_a_fused_row_joins_are_told(tmp_path: Path) -> None:
    sample = resaved(write_sample(find_dialects("google")[0], tmp_path), tmp_path)
    path = sample.folder / sample.weights
    tensors = {name: stored.load() for name, stored in open_container(path).tensors.items()}
    name = next(each for each in tensors if each.endswith("query/kernel"))
    rewrite(path, {**tensors, name: tensors[name].astype("float16")}, None)
    assert read_checkpoint(path, **sample.reading).notes[0] == "widened float16 to float32"
    rewrite(path, {**tensors, name: tensors[name].astype("int32")}, None)
    with pytest.raises(WeightsError, match="query/kernel: of type int32, expected floating-point"):
        read_checkpoint(path, **sample.reading)


def test_another_projection_than_config_says_is_refused(tmp_path: Path) -> None:
    sample = resaved(write_sample(find_dialects("hf-clip-vision")[0], tmp_path), tmp_path)
    with pytest.raises(WeightsError, match=r"num_classes = 7 \(shapes\), but 8 \(config"):
        read_checkpoint(edited(sample, "config.json", projection_dim=8), **sample.reading)


@pytest.mark.parametrize("byte", range(4))
def test_a_comment_whose_mark_is_damaged_is_no_foreign_one(byte: int, tmp_path: Path) -> None:
    sample = write_sample(find_dialects("google")[0], tmp_path)
    path = sample.folder / sample.weights
    content = bytearray(path.read_bytes())
    content[content.rindex(b"vit\0") + byte] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="the comment at the end of the archive is damaged"):
        read_checkpoint(path)


def test_dinov3_without_its_periods_is_refused(tmp_path: Path) -> None:
    sample = write_sample(find_dialects("dinov3-masked")[0], tmp_path)
    path = sample.folder / sample.weights
    tensors = {name: stored.load() for name, stored in open_container(path).tensors.items()}
    for lost in ("rope_embed.periods", "cls_token"):
        rewrite(path, {name: array for name, array in tensors.items() if name != lost}, None)
        with pytest.raises((ConfigError, WeightsError), match=path.name):
            read_checkpoint(path, dialect="dinov3-masked")


# All of it


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(1))
def test_thousands_of_changes(seed: int, tmp_path: Path) -> None:
    (inside := tmp_path / "attack").mkdir()
    for sample in every_sample(tmp_path):
        assert wrong(attack(sample, 25, seed, inside)) == [], sample.name
        if sample.signed and not sample.entry:
            assert wrong(contradict(sample, 25, seed, inside)) == [], sample.name
