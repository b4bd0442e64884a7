"""`parity check` takes its flags in any order and prints what a user calls things as it stands."""

import io

import pytest
from rich.console import Console
from tiny import TINY

from parity.cli import run
from parity.faults import FAULTS
from parity.twins.check import check_config
from parity.twins.report import print_report


@pytest.mark.parametrize("words", ["--fault list", "--fault=list", "digits --fault list"])
def test_the_list_of_faults_wherever_it_is_asked_for(capsys, words):
    assert run("check", words.split()) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in FAULTS)


def test_brackets_in_a_path_are_no_markup():
    report = check_config(TINY, subject="run[/x]/[red].safetensors", dtypes=("float64",))
    shown = io.StringIO()
    print_report(report, Console(file=shown, width=110))
    assert "parity check run[/x]/[red].safetensors" in shown.getvalue()
