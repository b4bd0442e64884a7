"""Worker processes: the batches of threads, bit for bit, for any number of them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.telling import Telling
from tests.support.tiny_tfds import CLASS_NAMES, png, tiny_image
from vit_config import Augment, DataError, Preprocess, Recipe
from vit_train.batches.data import open_dataset, train_batches
from vit_train.batches.workers import SharedFile, read_by_workers

ROOT = Path(__file__).parents[2]
GREY = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
RECIPE = Recipe(
    epochs=2, batch_size=6, augment=Augment(crop="torchvision", flip=True, color_jitter=0.3, erase=0.5)
)
SIZE = (21, 15)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASS_NAMES):
        (folder / name).mkdir()
        for index in range(9):
            (folder / name / f"{index}.png").write_bytes(png(tiny_image(label, rng)))
    (folder / CLASS_NAMES[0] / "4.png").write_bytes(b"\x89PNG and no more")
    return folder


def opened(root):
    dataset = open_dataset(f"folder:{root}", root)
    dataset.train.on_damage = "replace"
    return dataset


def test_batches_do_not_depend_on_their_number(root):
    plain = opened(root)
    expected = [*train_batches(plain, RECIPE, GREY, image_size=SIZE, num_threads=0)]
    assert len(expected) == 2 * 4
    for workers, start in ((1, 5), (2, 0)):
        dataset = opened(root)
        options = {"image_size": SIZE, "start_step": start, "num_workers": workers}
        actual = [*train_batches(dataset, RECIPE, GREY, **options)]
        assert len(actual) == len(expected) - start
        for ours, theirs in zip(actual, expected[start:], strict=True):
            for name in ("image", "label"):
                np.testing.assert_array_equal(ours[name], theirs[name])
    assert dataset.train.damaged.keys() == plain.train.damaged.keys() != set()
    assert [str(e) for e in dataset.train.damaged.values()] == [
        str(e) for e in plain.train.damaged.values()
    ]


def test_what_a_worker_raises_is_raised_and_a_lost_worker_is_one_line(root):
    dataset = opened(root)
    dataset.train.on_damage = "refuse"
    with pytest.raises(DataError, match=r"4\.png: damaged"):
        list(train_batches(dataset, RECIPE, GREY, image_size=SIZE, num_workers=1))
    batches = train_batches(opened(root), RECIPE, GREY, image_size=SIZE, num_workers=1)
    next(batches)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(DataError, match="1 worker processes was ended from outside"):
        list(batches)


def test_no_worker_sees_an_interrupt_and_mistakes_keep_their_traceback():
    result = read_by_workers(Telling(), num_workers=2)
    for index in range(3):
        _, withheld, array, empty = next(result)
        assert {signal.SIGINT, signal.SIGTERM} <= set(withheld)
        np.testing.assert_array_equal(array, np.full((3, 5), index))
        array += 1  # it is nobody else's
        assert empty.shape == (0, 2)
    with pytest.raises(KeyError) as caught:
        next(result)
    assert 'raise KeyError("a mistake")' in caught.value.__notes__[0]
    assert not {signal.SIGINT, signal.SIGTERM} & signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_end_with_the_process_that_was_killed():
    code = """
import time
from tests.support.telling import Telling
from vit_train.batches.workers import read_by_workers

found = read_by_workers(Telling(), num_workers=1)
print(next(found)[0], flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and "Z" not in state_of(worker):
        assert time.monotonic() < until
        time.sleep(0.02)


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_a_system_without_files_in_memory_sends_arrays(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    file = SharedFile()
    arrays = [memoryview(b"abc"), memoryview(b"")]
    assert file.read(file.write(arrays)) == [b"abc", b""]
    file.close()
