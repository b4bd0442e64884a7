"""Images that a CSV or Parquet file lists, pictures or bands, with one label or several."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parity.cli import run
from tests.support.refusals import one_line
from tests.support.tiny_tfds import png, tiny_image
from vit_config import DataError, MissingFileError, read_weights
from vit_train.batches.data import open_dataset
from vit_train.batches.fit import hold_out
from vit_train.sources import table as of_tables

pytestmark = pytest.mark.quick


def write(folder, rows, head="path,label,split"):
    """Images for the rows of a table, and the table."""
    rng = np.random.default_rng(0)
    for number, row in enumerate(rows):
        path = folder / row.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(tiny_image(number % 3, rng, (9, 7))))
    table = folder / "set.csv"
    table.write_text("\n".join([head, *rows]) + "\n")
    return table


def opened(table):
    return open_dataset(f"table:{table}", table.parent)


ROWS = [
    "a/1.png,cat,train",
    "a/2.png,dog,train",
    "b/3.png,cat,val",
    "b/4.png,dog,test",
    "5.png,ant,train",
]


def test_splits_and_classes_are_those_of_the_table(tmp_path):
    dataset = opened(write(tmp_path, ROWS))
    assert dataset.class_names == ("ant", "cat", "dog")
    assert [dataset.train[index]["label"] for index in range(3)] == [1, 2, 0]
    assert dataset.train[1]["image"].shape == (9, 7, 3)
    assert (len(dataset.test), dataset.test[0]["label"]) == (1, 2)
    assert hold_out(dataset, 0.0)[1] is dataset.validation is not None
    assert dataset.validation[0]["label"] == 1
    with pytest.raises(DataError) as caught:
        hold_out(dataset, 0.5)
    one_line(caught.value, "validation_fraction = 0.5", "1 validation images of its own")
    other = [*ROWS[:2], ROWS[2].replace("val", "validation"), *ROWS[3:]]
    assert opened(write(tmp_path, other)).fingerprint == dataset.fingerprint
    changed = [ROWS[0].replace("cat", "dog"), *ROWS[1:]]
    assert opened(write(tmp_path, changed)).fingerprint != dataset.fingerprint


def test_parquet_is_read_alike(tmp_path):
    csv = opened(write(tmp_path, ROWS))
    columns = zip(*(row.split(",") for row in ROWS), strict=True)
    table = pa.table(dict(zip(("path", "label", "split"), map(list, columns), strict=True)))
    pq.write_table(table, tmp_path / "set.parquet")
    dataset = open_dataset(f"table:{tmp_path / 'set.parquet'}", tmp_path)
    assert dataset.fingerprint == csv.fingerprint
    assert dataset.class_names == csv.class_names


def test_without_splits_every_tenth_image_of_a_class_is_held_out(tmp_path):
    rows = [f"{number}.png,{number % 2 * 9 + 1}" for number in range(24)]
    dataset = opened(write(tmp_path, rows, "path,label"))
    assert dataset.class_names == ("1", "10")  # numbers by their size
    assert (len(dataset.train), len(dataset.test), dataset.validation) == (20, 4, None)
    assert [dataset.test.raw.files[index][0] for index in range(4)] == [
        "0.png",
        "1.png",
        "20.png",
        "21.png",
    ]
    train, validation = hold_out(dataset, 0.2)
    assert [validation[index]["label"] for index in range(4)] == [0, 1, 0, 1]  # spread over classes
    assert len(train.train) == 16


def test_a_split_for_validation_alone_is_what_is_tested_on(tmp_path):
    dataset = opened(write(tmp_path, ["1.png,cat,train", "2.png,dog,train", "3.png,dog,val"]))
    assert (len(dataset.train), len(dataset.test), dataset.validation) == (2, 1, None)


@pytest.mark.parametrize(
    ("rows", "head", "words"),
    [
        (["a.png,cat"], "file,label", ["file, label", 'expected "path", and "label"']),
        (["a.png,cat", ",dog"], "path,label", ["row 2", "no path"]),
        (["a.png,cat", "b.png,"], "path,label", ["'b.png'", "empty label"]),
        (
            ["a.png,cat,holdout"],
            "path,label,split",
            ["row 1", "'holdout' is unknown", "train, test, val"],
        ),
        (["a.png,cat,train"], "path,label,split", ["nothing to train on"]),
        (["a.png,cat,train", "b.png,cat,"], "path,label,split", ["'b.png' no split"]),
        (["a.png,cat", "a.png,dog"], "path,label", ["'a.png' twice"]),
        (["a.png,cat,train,more"], "path,label,split", ["row 1 has more cells"]),
        ([], "path,label", ["lists no images"]),
        (["a.png,x;x"], "path,labels", ["row 1", "one twice"]),
        (["a.png,cat", "./a.png,dog"], "path,label", ["'a.png' twice"]),
        (["a.png,cat,dog"], "path,label,label", ["2 columns are called 'label'"]),
        (["a.png,", "b.png,"], "path,labels", ["no image has a label", "name at least one class"]),
    ],
)
def test_a_table_that_cannot_be_used(rows, head, words, tmp_path):
    table = write(tmp_path, [row for row in rows if row.split(",")[0]], head)
    table.write_text("\n".join([head, *rows]))
    with pytest.raises(DataError) as caught:
        opened(table)
    one_line(caught.value, "set.csv", *words)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"labels": [0, 1]}, ["row 1", "labels 0 are no list"]),
        ({"labels": [{"cat": 1}, {"cat": 0}]}, ["row 1", "labels {'cat': 1} are no list"]),
        ({"label": [0.0, 1.0]}, ["row 1", "label 0.0 is no name"]),
        ({"label": ["cat", "dog"], "split": [["train"], ["test"]]}, ["row 1", "['train'] is unknown"]),
    ],
)
def test_a_parquet_file_of_other_types_cannot_be_used(columns, words, tmp_path):
    pq.write_table(pa.table({"path": ["a.png", "b.png"], **columns}), tmp_path / "set.parquet")
    with pytest.raises(DataError) as caught:
        open_dataset(f"table:{tmp_path / 'set.parquet'}", tmp_path)
    one_line(caught.value, "set.parquet", *words)


def test_a_parquet_file_that_unpacks_to_a_great_deal_is_refused_before_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(of_tables, "LONGEST", 2**17)
    path = tmp_path / "set.parquet"
    whole = {"path": ["a.png"] * 10_000, "label": pa.nulls(10_000), "pixels": ["none"] * 10_000}
    pq.write_table(pa.table(whole), path)
    with pytest.raises(DataError) as caught:
        open_dataset(f"table:{path}", tmp_path)
    one_line(caught.value, "its columns take more than 131072 bytes")


def test_numbers_are_classes_however_long_they_are(tmp_path):
    long = "1" * 5000  # more digits than Python reads as a number
    rows = [f"a.png,{long},train", "b.png,10,train", "c.png,010,train", "d.png,9,test"]
    dataset = opened(write(tmp_path, rows))
    assert dataset.class_names == ("9", "010", "10", long)


def test_files_that_are_elsewhere_or_nowhere(tmp_path):
    table = write(tmp_path, ["a.png,cat", "b.png,cat"], "path,label")
    (tmp_path / "b.png").unlink()
    with pytest.raises(MissingFileError) as caught:
        opened(table)
    one_line(caught.value, "1 of 2 files are not there, such as", "b.png; paths are relative")
    table.write_text("path,label\n../a.png,cat\n")
    with pytest.raises(DataError) as caught:
        opened(table)
    one_line(caught.value, "row 1", "'../a.png'", "not below")
    with pytest.raises(MissingFileError) as caught:
        open_dataset(f"table:{tmp_path / 'none.csv'}", tmp_path)
    one_line(caught.value, "is no file", ".csv or .parquet")


BANDS = 5
FLAGS = (
    *("--model.image-size", "12", "--model.patch-size", "4", "--model.in-channels", str(BANDS)),
    *("--model.num-classes", "2", "--model.depth", "1", "--recipe.labels", "several"),
    *("--recipe.loss", "sigmoid_mean", "--recipe.epochs", "4", "--recipe.batch-size", "8"),
    *("--recipe.label-smoothing", "0", "--recipe.class-weights", "balanced"),
)


def write_bands(folder):
    """Arrays of 16 bits in five bands; each label makes one of them bright."""
    rng, rows = np.random.default_rng(0), ["path,labels,split"]
    for number in range(40):
        image = rng.integers(0, 30_000, (12, 12, BANDS)).astype(np.uint16)
        labels = [name for band, name in enumerate(("ice", "sea")) if number >> band & 1]
        for name in labels:
            image[..., ("ice", "sea").index(name)] += 25_000
        np.save(folder / f"{number}.npy", image)
        rows.append(f"{number}.npy,{';'.join(labels)},{'test' if number % 5 == 0 else 'train'}")
    (folder / "set.csv").write_text("\n".join(rows))
    return folder / "set.csv"


@pytest.mark.slow
def test_bands_with_several_labels_are_trained_on_scored_and_predicted(tmp_path, capsys):
    table = write_bands(tmp_path)
    command = [*FLAGS, "--data", f"table:{table}", "--framework", "torch"]
    refused = [each for each in command if each not in ("--recipe.labels", "several")]
    assert run("train", refused, prog="train.py") == 2
    assert "any number of labels for an image" in capsys.readouterr().err
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run("train", [*command, "--run-dir", str(whole)], prog="train.py") == 0
    said = capsys.readouterr().out
    assert "training images of each class: ice 16" in said
    assert "5 bands of uint16: mean (0." in said
    for stop in (["--stop-after", "3"], ["--no-check"]):  # its weights are those of the whole run
        assert run("train", [*command, "--run-dir", str(broken), *stop], prog="train.py") == 0
    files = [(each / "weights.safetensors").read_bytes() for each in (whole, broken)]
    assert files[0] == files[1]
    capsys.readouterr()
    preprocess = read_weights(whole / "weights.safetensors").preprocess
    assert (preprocess.pixel_type, preprocess.several_labels) == ("uint16", True)
    assert preprocess.mean[0] == pytest.approx((15_000 + 12_500) / 65_535, rel=0.1)
    scores = tmp_path / "scores.json"
    flags = ["--framework", "torch"]
    assert run("eval", [str(whole), *flags, "--json", str(scores)], prog="parity eval") == 0
    content = json.loads(scores.read_text())
    assert content["images"] == 8
    assert len(content["average_precision"]) == 2
    assert "mean average precision" in capsys.readouterr().out
    plot = [str(whole), *flags, "--plot", str(tmp_path / "x.png")]
    assert run("eval", plot, prog="parity eval") == 2
    assert "images with several labels have no confusion matrix" in capsys.readouterr().err
    assert run("plot", [str(whole), *flags], prog="parity plot") == 0
    assert (whole / "attention.png").is_file()
    assert not (whole / "confusion.png").exists()
    single = table.with_name("one.csv")
    text = table.read_text().replace("path,labels", "path,label").replace("ice;sea", "sea")
    single.write_text("\n".join(row for row in text.split("\n") if ",," not in row))
    one = [str(whole), *flags, "--data", f"table:{single}"]
    assert run("eval", one, prog="parity eval") == 2
    assert "gives an image any number of labels, but an image of table" in capsys.readouterr().err
    assert run("predict", [str(whole), str(tmp_path / "3.npy"), *flags], prog="parity predict") == 0
    assert "ice" in capsys.readouterr().out
    odd = tmp_path / "odd.npy"
    np.save(odd, np.zeros((12, 12, BANDS), np.uint8))
    assert run("predict", [str(whole), str(odd), *flags], prog="parity predict") == 2
    assert "odd.npy: has 5 channels of uint8, expected 5 of uint16" in capsys.readouterr().err


def test_more_lines_than_a_table_of_its_size_needs_are_not_made(tmp_path):
    table = write(tmp_path, ["a.png,cat,train"])
    table.write_text(table.read_text() + "\n" * 600_000)
    with pytest.raises(DataError, match=r"600002 lines in \d+ bytes"):
        opened(table)
