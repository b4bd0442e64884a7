"""Images in folders: torchvision's layout in torchvision's order, and what cannot be read is named."""

from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from parity.porting.reading.libraries.peers import import_timm
from tests.support.tiny import TINY
from tests.support.tiny_tfds import CLASS_NAMES, jpeg, png, tiny_image
from vit_config import DataError, MissingFileError, Preprocess, Recipe, ViTConfig
from vit_config.job import Job
from vit_torch.train.run import train
from vit_train.batches.data import eval_batches, open_dataset, train_batches
from vit_train.batches.fit import fit_dataset, hold_out
from vit_train.folder.log import read_log
from vit_train.task import make_task

pytestmark = pytest.mark.quick

import_timm()
datasets = import_module("torchvision.datasets")  # once its operators are declared

GREY = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
SIZE = (21, 15)


def write(folder, counts, suffixes=(".png", ".JPG"), seed=0):
    """Images of several sizes, some a folder deeper, for each of three classes."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(CLASS_NAMES):
        for index in range(counts):
            size = (SIZE[0] + index % 2, SIZE[1] + label)
            suffix = suffixes[index % len(suffixes)]
            place = folder / name / ("deeper" if index % 5 == 4 else ".")
            place.mkdir(parents=True, exist_ok=True)
            encode = png if suffix == ".png" else jpeg
            (place / f"{index:02}{suffix}").write_bytes(encode(tiny_image(label, rng, size)))
        (folder / name / "notes.txt").write_text("not an image")


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "set" / "train", 13)
    write(tmp_path / "set" / "val", 5, seed=1)
    return tmp_path / "set"


def opened(root):
    return open_dataset(f"folder:{root}", root / "nowhere")


def test_records_are_those_of_torchvision_in_its_order(root):
    dataset = opened(root)
    assert dataset.class_names == ("blue", "green", "red")
    for records, split in ((dataset.train, "train"), (dataset.test, "val")):
        theirs = datasets.ImageFolder(str(root / split))
        assert len(records) == len(theirs)
        for index, (image, label) in enumerate(theirs):
            assert records[index]["label"] == label
            np.testing.assert_array_equal(records[index]["image"], np.asarray(image))


def test_pictures_of_a_kind_that_is_not_read_are_counted(root):
    assert opened(root).notes == ()
    for path in ("train/red/a.gif", "train/blue/b.GIF", "val/red/c.heic"):
        (root / path).write_bytes(b"of any content")
    (note,) = opened(root).notes
    assert "left out 2 .gif, 1 .heic" in note


def test_one_folder_has_a_tenth_of_each_class_held_out(tmp_path):
    write(tmp_path / "set", 13)
    dataset = opened(tmp_path / "set")
    assert (len(dataset.train), len(dataset.test)) == (33, 6)
    assert np.bincount([dataset.test[i]["label"] for i in range(6)]).tolist() == [2, 2, 2]
    files = [[path for path, _ in split.raw.files] for split in (dataset.train, dataset.test)]
    assert not set(files[0]) & set(files[1])
    assert len({*files[0], *files[1]}) == 39


def test_the_fingerprint_follows_names_and_contents(root, tmp_path):
    before = opened(root).fingerprint
    root.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert opened(moved).fingerprint == before
    (moved / "train" / "red" / "00.png").rename(moved / "train" / "red" / "0.png")
    renamed = opened(moved).fingerprint
    assert renamed != before
    (moved / "train" / "red" / "0.png").write_bytes((moved / "train" / "red" / "02.png").read_bytes())
    assert opened(moved).fingerprint != renamed


def test_an_image_that_is_replaced_after_the_fingerprint_is_refused(root):
    data = opened(root)
    path = root / data.train.raw.files[0][0]
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(DataError, match="was changed after the fingerprint of the set was taken"):
        data.train[0]


def test_files_are_read_in_the_channels_of_the_model(root):
    """As `predict` reads them: grey for a model of one channel, whatever a file is stored in."""
    for index, path in enumerate(sorted((root / "train").rglob("*.*"))):
        if path.suffix != ".txt" and index % 2:
            with Image.open(path) as image:
                image.convert("L").save(path)
    for channels, mode in ((1, "L"), (3, "RGB"), (4, "RGBA")):
        cfg = ViTConfig(image_size=SIZE, patch_size=(7, 5), in_channels=channels, num_classes=3)
        dataset = fit_dataset(cfg, opened(root))
        for split in (dataset.train, dataset.test):
            for index in range(len(split)):
                with Image.open(root / split.raw.files[index][0]) as image:
                    expected = np.asarray(image.convert(mode)).reshape(*image.size[::-1], channels)
                np.testing.assert_array_equal(split[index]["image"], expected)
        if channels != 4:  # all are opaque, so that there is nothing to divide by
            recipe = Recipe(epochs=1, batch_size=13, pixels="half")
            task = make_task(Job(cfg, recipe, f"folder:{root}"), root)
            assert next(task.batches(0))["image"].shape == (13, *SIZE, channels)
    with pytest.raises(DataError, match="has 3 channels, but the model has in_channels = 5"):
        fit_dataset(cfg.replace(in_channels=5), opened(root))


def test_what_a_mac_leaves_in_an_archive_is_no_image(root):
    before = opened(root)
    for split in ("train", "val"):
        (root / split / "green" / "._00.png").write_bytes(b"\0\5\x16\7")
        (root / split / "__MACOSX" / "green").mkdir(parents=True)
        (root / split / "__MACOSX" / "green" / "00.png").write_bytes(b"\0\5\x16\7")
        (root / split / "red" / "__MACOSX").mkdir(parents=True)
        (root / split / "red" / "__MACOSX" / "00.png").write_bytes(b"\0\5\x16\7")
    after = opened(root)
    assert after.class_names == before.class_names
    assert after.train.raw.files == before.train.raw.files
    assert after.fingerprint == before.fingerprint


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (
            lambda root: root.rename(root.parent / "away"),
            MissingFileError,
            "is no folder; give --data folder:PATH, with",
        ),
        (lambda root: (root / "val" / "violet").mkdir(), DataError, "violet is in one of them only"),
        (lambda root: (root / "train" / "empty").mkdir(), DataError, "no image in "),
    ],
)
def test_a_folder_that_is_not_a_set_is_one_line(root, spoil, error, said):
    spoil(root)
    with pytest.raises(error, match=said) as caught:
        opened(root)
    assert "\n" not in str(caught.value)


def test_a_link_to_another_place_is_not_followed_for_ever(root, tmp_path, monkeypatch):
    for number in range(12):
        (tmp_path / "elsewhere" / f"{number}").mkdir(parents=True)
    (root / "train" / "red" / "more").symlink_to(tmp_path / "elsewhere")
    opened(root)
    monkeypatch.setattr("vit_train.sources.place.MOST_FOLDERS", 9)
    with pytest.raises(DataError, match="a link leads out of the set"):
        opened(root)


def test_a_damaged_image_is_named_and_ends_the_run_or_is_replaced(root):
    recipe = Recipe(epochs=1, batch_size=39)
    bad = root / "train" / "green" / "03.JPG"
    bad.write_bytes(bad.read_bytes()[:100])
    dataset = opened(root)
    options = {"image_size": SIZE, "num_threads": 0}
    with pytest.raises(DataError, match=r"train/green/03\.JPG: damaged \(.*copy or prepare"):
        next(train_batches(dataset, recipe, GREY, **options))
    dataset.train.on_damage = "replace"
    (batch,) = train_batches(dataset, recipe, GREY, **options)
    assert np.bincount(batch["label"]).tolist() == [13, 13, 13]
    (index,) = dataset.train.damaged
    assert dataset.train.name(index).endswith("train/green/03.JPG")
    assert dataset.train[index] is not None
    for threads in (1, 3):
        again = opened(root)
        again.train.on_damage = "replace"
        (other,) = train_batches(again, recipe, GREY, image_size=SIZE, num_threads=threads)
        np.testing.assert_array_equal(other["image"], batch["image"])


def test_what_is_held_out_keeps_its_labels_and_names(root):
    (root / "train" / "red" / "02.png").write_bytes(b"")
    rest, out = hold_out(opened(root), 0.25)
    splits = (rest.train, out)
    assert [np.bincount(each.labels).tolist() for each in splits] == [[9, 10, 10], [4, 3, 3]]
    numbered = {each.name(index): (each, index) for each in splits for index in range(len(each))}
    assert len(numbered) == 39
    (bad,) = (name for name in numbered if name.endswith("train/red/02.png"))
    split, index = numbered[bad]
    with pytest.raises(DataError, match=r"train/red/02\.png: damaged"):
        split[index]


def test_damaged_images_do_not_count_in_a_score(root):
    (root / "val" / "red" / "00.png").write_bytes(b"")
    dataset = opened(root)
    dataset.test.on_damage = "replace"
    batches = list(eval_batches(dataset.test, GREY, image_size=SIZE, batch_size=8))
    assert sum(batch["mask"].sum() for batch in batches) == 14
    assert len(dataset.test.damaged) == 1


def test_a_run_on_a_folder_names_what_was_replaced(root, tmp_path, capsys):
    (root / "train" / "red" / "02.png").write_bytes(b"no image")
    (root / "train" / "red" / "02.gif").write_bytes(b"of any content")
    cfg = TINY.replace(depth=1, num_classes=3)
    job = Job(cfg, Recipe(epochs=1, batch_size=13, learning_rate=1e-3), f"folder:{root}")
    here = {"data_dir": tmp_path, "run_dir": tmp_path / "run"}
    with pytest.raises(DataError, match=r"train/red/02\.png: damaged"):
        train(job, **here)
    trained = train(job, **here, on_damage="replace")
    assert (trained.step, trained.test.count) == (3, 15)
    assert trained.preprocess.class_names == ("blue", "green", "red")
    said = capsys.readouterr().out
    assert "left out 1 .gif" in said
    assert "damaged images that were replaced: 1" in said
    assert "--damaged replace" not in said  # which the user gave
    (event,) = [event for event in read_log(tmp_path / "run") if event["kind"] == "damaged"]
    assert event["count"] == 1
    assert "train/red/02.png: damaged" in event["records"][0]


def test_photos_that_a_camera_turned_are_counted_and_turned_where_asked_for(root, tmp_path, capsys):
    """By the same field in training and in what the run exports."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for place in ("train/red/02.png", "train/blue/01.JPG", "val/red/01.JPG"):
        with Image.open(root / place) as image:
            image.save(root / place, exif=exif)
    dataset = opened(root)
    assert dataset.turned == 3
    kept, turned = (dataset.oriented(exif) for exif in ("ignore", "apply"))
    assert "noted of 3 photos that they are turned; they are taken as" in " ".join(kept.notes)
    assert not turned.notes
    every = range(len(kept.train))
    differ = [kept.train[i]["image"].shape != turned.train[i]["image"].shape for i in every]
    assert sum(differ) == 2
    assert opened(root).turned == 3  # remembered with the fingerprint
    sizes = {"hidden_size": 30, "depth": 1, "num_heads": 5, "mlp_dim": 44}
    cfg = ViTConfig(image_size=SIZE, patch_size=(7, 5), num_classes=3, **sizes)
    recipe = Recipe(epochs=1, batch_size=13, learning_rate=1e-3)
    for exif in (None, "apply"):
        job = Job(cfg, recipe.replace(exif=exif), f"folder:{root}")
        trained = train(job, data_dir=tmp_path, run_dir=tmp_path / f"run{exif}")
        assert trained.preprocess.exif == (exif or "ignore")
        assert ("--exif apply turns them" in capsys.readouterr().out) == (exif is None)
