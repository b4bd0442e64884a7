"""A small file takes little memory, whatever it says of itself."""

import re

import numpy as np
import pytest
import torch

from parity.porting.formats import open_container
from parity.porting.formats.budget import Budget, folder_budget
from tests.support import hostile
from tests.support.share import rarely
from vit_config.errors import WeightsError
from vit_config.files.held import FLOOR, MULTIPLE, stored_bytes

MOST = 400
"""MiB; before there was a budget, twelve of them took more, and would have taken any number."""


COSTLY = (
    "sets", "tuples in tuples", "references", "dictionaries", "a packed pickle", "packed texts",
    "letters", "empty lists", "numbers",
)  # fmt: skip
"""Files that take seconds to open, each beside a cheaper one of its kind."""


@pytest.fixture(scope="module")
def opened(request):
    """All that this run opens, in one process: its peak is that of the worst."""
    cases = (
        getattr(item, "callspec", None) for item in request.session.items if item.path == request.path
    )
    return hostile.in_a_child(*(case.params["name"] for case in cases if case))


@pytest.mark.parametrize(
    "name", rarely(hostile.FILES, [name for name in hostile.FILES if name not in COSTLY])
)
def test_a_small_file_makes_little(opened, name):
    assert opened[name]["said"]
    assert "\n" not in opened[name]["said"]
    assert opened[name]["mib"] < MOST


def test_the_budget_is_counted_over_the_whole_file(tmp_path):
    path = tmp_path / "a.pt"
    budget = Budget(path, 10)
    budget.values(FLOOR)
    budget.values(10 * MULTIPLE)
    with pytest.raises(WeightsError, match=re.escape(f"{path}: its 10 bytes")):
        budget.values(1)
    budget.unpacked(FLOOR + 10 * MULTIPLE)
    with pytest.raises(WeightsError, match="unpacked"):
        budget.unpacked(FLOOR + 10 * MULTIPLE + 1)
    large = Budget(path, 2**40)
    large.objects(2**29)
    with pytest.raises(WeightsError, match="of objects"):
        large.objects(1)


def test_folders_within_a_folder_are_not_held(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"x" * 10)
    budget = folder_budget(tmp_path)
    budget.values(FLOOR + 10 * MULTIPLE)
    with pytest.raises(WeightsError, match="its 10 bytes"):
        budget.values(1)


def test_holes_are_not_held(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 5000)
    assert stored_bytes(path) == 5000
    with path.open("r+b") as file:
        file.truncate(2**24)
        file.seek(2**23)
        file.write(b"y")
    assert 5001 <= stored_bytes(path) <= 2**16


def test_honest_files_of_repeated_values_are_read(tmp_path):
    tied = torch.zeros(40, 50)
    state = {"a": tied, "b": tied, "c": torch.ones(1).expand(2000), "d": tied.t()}
    torch.save(state, tmp_path / "a.pt")
    np.savez_compressed(tmp_path / "b.npz", a=np.zeros((300, 400), np.float32))
    tensors = open_container(tmp_path / "a.pt").tensors
    assert all(np.array_equal(tensors[name].load(), state[name].numpy()) for name in state)
    assert not open_container(tmp_path / "b.npz").tensors["a"].load().any()
