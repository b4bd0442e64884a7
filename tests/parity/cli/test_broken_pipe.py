"""Behind ``| head`` a command ends without a word, and with another status than models that differ."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.cli import diff

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("command", [["inspect", "digits"], ["list"]], ids=str)
def test_nobody_reads(command, tmp_path):
    """What was to be written is written nevertheless."""
    file = tmp_path / "report.json"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "parity", *command, "--json", str(file)],
        stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
    assert json.loads(file.read_text())


class _Unread(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_report_of_two_programs_is_written_before_it_is_printed(tmp_path, monkeypatch):
    kept, page, repro = (tmp_path / name for name in ("report.json", "page.html", "repro.py"))
    side = f"{ROOT / 'tests/support/mistaken_models.py'}"
    written = ["--json", str(kept), "--html", str(page), "--repro", str(repro)]
    monkeypatch.setattr(sys, "stdout", _Unread())
    with pytest.raises(BrokenPipeError):
        diff.main([f"{side}:torch_forward", f"{side}:torch_twice", *written])
    assert all(each.is_file() for each in (kept, page, repro))
