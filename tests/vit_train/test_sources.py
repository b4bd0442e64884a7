"""Tar files and Arrow and Parquet files: every record as it was written, and what is wrong is named."""

import io
import json
import pickle
import re
import tarfile

import numpy as np
import pytest

from tests.support.tiny_tfds import CLASS_NAMES, png, tiny_image
from vit_config import DataError, MissingFileError, Preprocess, Recipe
from vit_train.batches.data import open_dataset, train_batches
from vit_train.batches.fit import hold_out

GREY = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
COUNTS = {"train": 13, "validation": 5}


def examples(split):
    """Images with labels, sorted by class."""
    rng = np.random.default_rng([*split.encode()])
    labels = sorted(index % 3 for index in range(COUNTS[split]))
    return [(tiny_image(label, rng, (21 + i % 2, 15)), label) for i, label in enumerate(labels)]


def write_tar(folder):
    """Two files to train on, one with labels as JSON; one to validate on."""
    folder.mkdir()
    parts = {
        "train-000000": examples("train")[:6],
        "train-000001": examples("train")[6:],
        "val-000000": examples("validation"),
    }
    for number, (name, part) in enumerate(parts.items()):
        with tarfile.open(folder / f"{name}.tar", "w") as tar:
            for index, (image, label) in enumerate(part):
                key = f"deep.er/{name}-{index:03}"
                sample = {"cls": b"%d\n" % label, "seg.png": png(image[::-1]), "png": png(image)}
                if number == 1:
                    sample["json"] = json.dumps({"label": label, "name": "x"}).encode()
                    del sample["cls"]
                for ending, content in sample.items():
                    member = tarfile.TarInfo(f"{key}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CLASS_NAMES))


def table(split, pa):
    rows = examples(split)
    images = [{"bytes": png(image), "path": None} for image, _ in rows]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    labels = pa.array([label for _, label in rows], pa.int64())
    return pa.table({"id": pa.array(range(len(rows))), "img": pa.array(images, kind), "label": labels})


FEATURES = {
    "id": {"dtype": "int64", "_type": "Value"},
    "img": {"_type": "Image"},
    "label": {"names": list(CLASS_NAMES), "_type": "ClassLabel"},
}


def write_arrow(folder):
    """As `DatasetDict.save_to_disk` does, in two files."""
    import pyarrow as pa

    for split in COUNTS:
        (folder / split).mkdir(parents=True)
        files = [f"data-0000{i}-of-00002.arrow" for i in range(2)]
        whole = table(split, pa)
        for name, part in zip(files, (whole[:4], whole[4:]), strict=True):
            path = str(folder / split / name)
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, whole.schema) as writer:
                writer.write_table(part, max_chunksize=3)
        state = {"_data_files": [{"filename": name} for name in files]}
        (folder / split / "state.json").write_text(json.dumps(state))
        (folder / split / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*COUNTS]}))


def write_parquet(folder):
    """As the Hub has them."""
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "data").mkdir(parents=True)
    about = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    for split in COUNTS:
        whole = table(split, pa).replace_schema_metadata(about)
        for number, part in enumerate((whole[:4], whole[4:])):
            path = folder / "data" / f"{split}-0000{number}-of-00002.parquet"
            options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
            parquet.write_table(part, path, row_group_size=3, **options)


def write_folder(folder):
    """As torchvision's `ImageFolder` has them, some a folder deeper."""
    for split, name in (("train", "train"), ("validation", "val")):
        for index, (image, label) in enumerate(examples(split)):
            place = folder / name / CLASS_NAMES[label] / ("deeper" if index % 3 == 2 else ".")
            place.mkdir(parents=True, exist_ok=True)
            number = sum(1 for _ in (folder / name / CLASS_NAMES[label]).rglob("*.png"))
            (place / f"{number:02}.png").write_bytes(png(image))


KINDS = {"tar": ("tar", write_tar), "arrow": ("hf", write_arrow), "parquet": ("hf", write_parquet)}


@pytest.fixture(params=KINDS)
def written(request, tmp_path):
    scheme, write = KINDS[request.param]
    write(tmp_path / "set")
    return request.param, f"{scheme}:{tmp_path / 'set'}", tmp_path / "set"


def test_every_record_is_what_was_written(written, tmp_path):
    _, spec, _ = written
    dataset = open_dataset(spec, tmp_path / "nowhere")
    assert (dataset.class_names, dataset.num_classes) == (CLASS_NAMES, 3)
    for records, split in ((dataset.train, "train"), (dataset.test, "validation")):
        expected = examples(split)
        assert len(records) == len(expected)
        for each in (records, pickle.loads(pickle.dumps(records))):  # as worker processes get them
            for index, (image, label) in enumerate(expected):
                assert each[index]["label"] == label
                np.testing.assert_array_equal(each[index]["image"], image)


def test_what_a_mac_leaves_in_an_archive_is_no_data(written, tmp_path):
    kind, spec, folder = written
    before = open_dataset(spec, tmp_path / "nowhere")
    double = b"\0\5\x16\7" + bytes(99)
    if kind == "tar":
        with tarfile.open(first_file(folder, "train"), "a") as tar:
            for name in ("deep.er/._train-000000-000.png", "__MACOSX/deep.er/a.png"):
                member = tarfile.TarInfo(name)
                member.size = len(double)
                tar.addfile(member, io.BytesIO(double))
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        (path.parent / f"._{path.name}").write_bytes(double)
        (path.parent / "__MACOSX").mkdir(exist_ok=True)
        (path.parent / "__MACOSX" / path.name).write_bytes(double)
    assert open_dataset(spec, tmp_path / "nowhere").fingerprint == before.fingerprint


def test_where_images_lie_in_tar_files_is_found_once(tmp_path, monkeypatch):
    write_tar(tmp_path / "set")
    first = open_dataset(f"tar:{tmp_path / 'set'}", tmp_path)
    monkeypatch.setattr("vit_train.sources.tar_shards.tarfile", None)
    again = open_dataset(f"tar:{tmp_path / 'set'}", tmp_path)
    assert again.fingerprint == first.fingerprint
    assert again.train.name(0) == first.train.name(0)


def test_labels_in_tar_files_are_known_without_reading_an_image(tmp_path, monkeypatch):
    write_tar(tmp_path / "set")
    dataset = open_dataset(f"tar:{tmp_path / 'set'}", tmp_path)
    monkeypatch.setattr("vit_train.sources.tar_shards.read_part", None)
    assert dataset.train.labels == [label for _, label in examples("train")]


def test_an_epoch_has_every_record_once_and_the_set_may_move(written, tmp_path):
    _, spec, folder = written
    dataset = open_dataset(spec, tmp_path)
    recipe = Recipe(epochs=2, batch_size=13)
    options = {"image_size": (21, 15)}
    for batch in train_batches(dataset, recipe, GREY, num_threads=3, **options):
        assert sorted(batch["label"].tolist()) == [label for _, label in examples("train")]
    folder.rename(tmp_path / "moved")
    moved = open_dataset(f"{spec.partition(':')[0]}:{tmp_path / 'moved'}", tmp_path)
    assert moved.fingerprint == dataset.fingerprint


def test_what_is_held_out_of_a_sorted_set_has_every_class(written, tmp_path):
    _, spec, _ = written
    dataset, validation = hold_out(open_dataset(spec, tmp_path), 0.25)
    assert validation is not None
    assert (len(dataset.train), len(validation)) == (10, 3)
    assert [validation[index]["label"] for index in range(3)] == [0, 0, 1]
    parts = (dataset.train, validation)
    every = [part[index]["image"].tobytes() for part in parts for index in range(len(part))]
    assert sorted(every) == sorted(image.tobytes() for image, _ in examples("train"))


def first_file(folder, split):
    """The file with the first images of a split, of any kind."""
    endings = (".tar", ".arrow", ".parquet")
    return min(path for path in folder.rglob("*") if path.suffix in endings and split in str(path))


@pytest.fixture
def remote(tmp_path):
    """A function that lays a folder on object storage, fsspec's own in memory; gives its address."""
    import fsspec

    memory = fsspec.filesystem("memory")

    def lay(folder, name):
        memory.put(str(folder), f"/{name}", recursive=True)
        return f"memory://{name}"

    yield lay
    for name in memory.ls("/", detail=False):
        memory.rm(name, recursive=True)


@pytest.mark.parametrize("kind", ["folder", "tar", "parquet"])
def test_a_set_on_object_storage_is_the_same(remote, kind, tmp_path):
    if kind == "folder":
        scheme, write = "folder", write_folder
    else:
        scheme, write = KINDS[kind]
    write(tmp_path / "set")
    here = open_dataset(f"{scheme}:{tmp_path / 'set'}", tmp_path)
    there = open_dataset(f"{scheme}:{remote(tmp_path / 'set', 'bucket/deep')}/", tmp_path)
    assert (there.fingerprint, there.class_names) == (here.fingerprint, here.class_names)
    for ours, theirs in ((here.train, there.train), (here.test, there.test)):
        assert len(ours) == len(theirs)
        copied = pickle.loads(pickle.dumps(theirs))  # as worker processes get them
        for index in range(len(ours)):
            assert ours[index]["label"] == copied[index]["label"]
            np.testing.assert_array_equal(ours[index]["image"], copied[index]["image"])
    assert there.train.name(0).startswith(f"{scheme}:memory://bucket/deep/, split train, ")


def test_what_object_storage_lacks_is_one_line(remote, tmp_path):
    with pytest.raises(MissingFileError, match=r"memory://nowhere is no folder"):
        open_dataset("folder:memory://nowhere", tmp_path)
    with pytest.raises(DataError, match=r"vit-parity\[remote\]"):
        open_dataset("tar:carrier-pigeon://bucket/set", tmp_path)
    write_arrow(tmp_path / "set")
    with pytest.raises(DataError, match="needs a local disk; copy the set, or write it as Parquet"):
        open_dataset(f"hf:{remote(tmp_path / 'set', 'arrow')}", tmp_path)
    write_folder(tmp_path / "folder")
    records = open_dataset(f"folder:{remote(tmp_path / 'folder', 'set')}", tmp_path).train
    records.raw.root.system.rm("/set/train/red/00.png")
    with pytest.raises(DataError, match=r"memory://set/train/red/00\.png: damaged"):
        records[next(i for i in range(len(records)) if records.name(i).endswith("red/00.png"))]


def test_a_damaged_image_is_named(written, tmp_path):
    _, spec, folder = written
    path, image = first_file(folder, "train"), png(examples("train")[1][0])
    content = path.read_bytes()
    place = content.index(image)
    path.write_bytes(content[:place] + bytes(50) + content[place + 50 :])
    records = open_dataset(spec, tmp_path).train
    said = r"split train, .*(train-000000-001|record 1): damaged \("
    with pytest.raises(DataError, match=said) as caught:
        records[1]
    assert "\n" not in str(caught.value)
    records.on_damage = "replace"
    np.testing.assert_array_equal(records[1]["image"], examples("train")[2][0])
    assert list(records.damaged) == [1]


def test_a_file_that_ends_too_early_is_one_line(written, tmp_path):
    _, spec, folder = written
    path = first_file(folder, "val")
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(DataError, match=re.escape(str(folder))) as caught:
        open_dataset(spec, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("scheme", "said"), [("tar", "ShardWriter"), ("hf", "save_to_disk")])
def test_a_missing_set_says_how_to_prepare_it(tmp_path, scheme, said):
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(MissingFileError, match=said):
            open_dataset(f"{scheme}:{place}", tmp_path)


def test_an_image_without_a_label_and_a_set_without_a_test_split_are_named(tmp_path):
    write_tar(tmp_path / "set")
    (tmp_path / "set" / "val-000000.tar").unlink()
    with pytest.raises(DataError, match='has the splits train; expected "train", and "test"'):
        open_dataset(f"tar:{tmp_path / 'set'}", tmp_path)
    with tarfile.open(tmp_path / "set" / "val-000000.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.png"), io.BytesIO(b""))
    with pytest.raises(
        DataError, match=r"val-000000.tar, a: no label beside the image; write .* a\.cls"
    ):
        open_dataset(f"tar:{tmp_path / 'set'}", tmp_path)
