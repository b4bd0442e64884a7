"""`parity check` prints what a user calls things as it stands."""

import io

import pytest
from rich.console import Console

from parity.twins.check import check_config
from parity.twins.check_report import print_report
from tests.support.tiny import TINY

pytestmark = pytest.mark.quick


def test_brackets_in_a_path_are_no_markup():
    report = check_config(TINY, subject="run[/x]/[red].safetensors", dtypes=("float64",))
    shown = io.StringIO()
    print_report(report, Console(file=shown, width=110))
    assert "parity check run[/x]/[red].safetensors" in shown.getvalue()
