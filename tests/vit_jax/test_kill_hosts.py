"""Processes that train as one, of which one is killed: in the end the run that nobody disturbed."""

import kill_hosts
import numpy as np
import pytest


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

    class Found:
        def __init__(self, folder):
            self.state, self.step = self, 3
            self.value = {"a": 1.0, "b": 1 + 1e-11, "c": 1 + 1e-9}[folder.name]

        def parts(self):
            return {"ema": {"head.bias": np.array([self.value, 0.0])}}

    monkeypatch.setattr(kill_hosts, "read_run", Found)
    one, near, other = (tmp_path / name for name in "abc")
    assert kill_hosts.far(near, one) == []
    assert kill_hosts.far(other, one) == ["ema: head.bias"]
