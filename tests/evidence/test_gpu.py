"""The five minutes on a GPU: what does not end is said, and what was done stays."""

import json
import sys

import pytest

from evidence import gpu
from parity.cli import main


def test_each_part_ends_in_its_time_and_is_on_the_page(tmp_path, monkeypatch, capsys):
    wrong = "import sys; print('no such device', file=sys.stderr); sys.exit(2)"
    parts = [
        gpu.Part("first", ("-c", "print(7 * 6)"), 60, writes=False),
        gpu.Part("slow", ("-c", "import time; time.sleep(60)"), 11, writes=False),
        gpu.Part("wrong", ("-c", wrong), 60, writes=False),
        gpu.Part("late", ("-c", "print(8)"), 5, writes=False),
    ]
    monkeypatch.setattr(gpu, "parts", lambda device: parts)
    monkeypatch.setattr(gpu, "LEAST", 6.0)
    monkeypatch.setattr(sys, "argv", ["gpu", str(tmp_path), "--device", "cpu"])
    parts[1] = parts[1]._replace(seconds=6.5)
    assert gpu.main() == 1
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert [each["why_not"] for each in results.values()] == [
        "", "did not end in 6 s", "no such device", "did not end in 5 s",
    ]  # fmt: skip
    page = (tmp_path / "gpu.md").read_text()
    assert "42" in page
    assert "Not done: no such device" in page
    assert "slow: did not end in 6 s" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_its_flags_are_those_of_its_commands(device, capsys):
    """One that was renamed would be found on a rented machine."""
    for part in gpu.parts(device):
        if part.argv[:2] == ("-m", "parity"):
            with pytest.raises(SystemExit):
                main([part.argv[2], "--help"])
            help = capsys.readouterr().out
            assert all(each in help for each in part.argv if each.startswith("--"))
