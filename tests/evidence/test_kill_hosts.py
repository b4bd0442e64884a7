"""Processes that train as one, of which one is killed: in the end the run that nobody disturbed."""

import numpy as np
import pytest

from evidence.kills import hosts as kill_hosts
from evidence.kills import ledger as kill_ledger


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 4])
def test_a_run_of_which_one_process_is_killed_is_in_the_end_the_same(count, tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    said = kill_hosts.kill_hosts(tmp_path, 4, [count], 0)
    assert [line.partition(" kills")[0] for line in said] == [
        f"{count} processes, then {count}: 2",
        f"{count} processes, then 1 or 2 or 4: 2",
    ]


def test_a_tensor_that_is_far_is_found(tmp_path, monkeypatch):
    """The comparison itself can fail."""

    class FakeRun:
        def __init__(self, folder):
            self.state, self.step = self, 3
            self.value = {"a": 1.0, "b": 1 + 1e-13, "c": 1 + 1e-11}[folder.name]

        def parts(self):
            return {"ema": {"head.bias": np.array([self.value, 0.0])}}

    monkeypatch.setattr(kill_hosts, "read_run", FakeRun)
    one, near, other = (tmp_path / name for name in "abc")
    assert kill_hosts.far(near, one) == []
    assert kill_hosts.far(other, one) == ["ema: head.bias"]


def test_what_was_done_is_kept_and_added_up(tmp_path):
    ledger = kill_ledger.Ledger(tmp_path)
    row = {"count": 2, "places": {"start": 1, "training": 2, "end": 1}, "apart": 1}
    ledger.add(**row, others=[2], numbers={"2": 3})
    with ledger.path.open("a") as file:
        file.write('{"count": 4, "oth')  # killed while it wrote
    again = kill_ledger.Ledger(tmp_path)
    again.add(**row, others=[1, 2, 4], numbers={"1": 1, "2": 1, "4": 1})
    again = kill_ledger.Ledger(tmp_path)
    assert [kill_ledger.kills_of(each) for each in again.of(2, (2,))] == [3]
    page = kill_ledger.page(again)
    assert "2 processes, then 2: 3 kills in 1 runs (3 of 2), 1 while starting, 1 times apart" in page
    assert "**6 kills in 2 runs**, 2 of them while starting; 2 times apart" in page


def test_other_packages_begin_anew(tmp_path, monkeypatch):
    kill_ledger.Ledger(tmp_path).add(count=2, others=[2], places={}, numbers={}, apart=0)
    monkeypatch.setattr(kill_ledger, "packages", lambda: "jax 99")
    with pytest.raises(SystemExit, match=r"made with .*, here is jax 99; take another --folder"):
        kill_ledger.Ledger(tmp_path)
