"""Of tensors that are all NaN in both recordings, or all zero, nothing can be said."""

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.verifier.recordings import Recorded, compare_sides

pytestmark = pytest.mark.quick

NAN = float("nan")


def _record(path, losses, gradient=NAN, weight=1.0):
    with parity.record(path) as trace:
        for loss in losses:
            with trace.step(x=np.ones(3)):
                trace.log("loss", loss)
                trace.log("gradients", {"fc": {"weight": np.array([[weight, gradient]])}})
    return path


def test_losses_that_are_nan_on_both_sides_are_not_compared(tmp_path, capsys):
    a, b = (_record(tmp_path / f"{name}.trace", [0.5, NAN, NAN]) for name in "ab")
    difference = compare_sides(Recorded(a), Recorded(b))
    assert difference.verdict == "INCOMPLETE"
    assert difference.left_out == tuple(
        f"loss of step {step}: A's and B's loss, which are all NaN" for step in (1, 2)
    )
    assert main(["diff", str(a), str(b)]) == 1
    assert "not compared: loss of step 1: A's and B's loss" in " ".join(capsys.readouterr().out.split())


def test_a_gradient_of_which_a_part_is_nan_is_compared(tmp_path):
    a, b = (Recorded(_record(tmp_path / f"{name}.trace", [0.5])) for name in "ab")
    assert compare_sides(a, b).verdict == "EQUAL"


def test_a_loss_that_is_nan_on_one_side_differs(tmp_path):
    a, b = (Recorded(_record(tmp_path / f"{x}.trace", [x])) for x in (0.5, NAN))
    assert compare_sides(a, b).verdict == "DIFFERENT"


def test_losses_and_gradients_of_zeros_certify_nothing(tmp_path, capsys):
    a, b = (str(_record(tmp_path / f"{name}.trace", [0.0], 0.0, 0.0)) for name in "ab")
    assert main(["diff", a, b, "--json", str(tmp_path / "c.json")]) == 1
    assert "UNCERTIFIED: all outputs and gradients are zero" in " ".join(capsys.readouterr().out.split())
    assert '"rule": "unseen"' in (tmp_path / "c.json").read_text()
