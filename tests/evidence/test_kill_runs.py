"""Runs with everything on, killed at random moments: in the end those that nobody killed."""

import pytest

from evidence.kills import runs as kill_runs


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_run_that_is_killed_is_in_the_end_the_same(framework, tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")  # runs of one device, as users have them
    said = kill_runs.kill_runs(tmp_path, 3, framework, 0)
    assert said.startswith(f"{framework}: 3 kills in ")


def test_a_number_that_is_another_is_found(tmp_path, monkeypatch):
    """The comparison itself can fail."""
    monkeypatch.setattr(
        kill_runs, "read_log", lambda folder: [{"kind": "train", "step": 1, "loss": 0.5}]
    )
    for name, byte in (("a", b"0"), ("b", b"1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.safetensors").write_bytes(byte)

    class State:
        step = 1

        def __init__(self, folder):
            self.value = {"a": 1.0, "b": 1.0000000000000002}[folder.name]

        def parts(self):
            return {"ema": {"head.bias": kill_runs.np.array([self.value])}}

    class FakeRun:
        def __init__(self, folder):
            self.state = State(folder)

    monkeypatch.setattr(kill_runs, "read_run", FakeRun)
    one, other = tmp_path / "a", tmp_path / "b"
    assert kill_runs.differences(one, one) == []
    assert kill_runs.differences(one, other) == ["ema: head.bias", "weights.safetensors"]
