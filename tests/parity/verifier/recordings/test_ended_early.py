"""Recordings of which one has fewer steps than the other, or was ended by an exception."""

from contextlib import suppress

import pytest
import torch
from torch import nn

import parity
from parity.cli import main
from parity.verifier.recordings import Recorded, compare_sides


def _record(path, steps, *, crash=None, rate=1e-3):
    """Record a loop of AdamW; `crash` is the step that an exception ends before its update."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    stream = torch.Generator().manual_seed(0)
    with suppress(RuntimeError), parity.record(path, model, optimizer=optimizer) as trace:
        for step in range(steps):
            x = torch.randn(4, 5, generator=stream, dtype=torch.float64)
            with trace.step(x=x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                trace.log("loss", loss)
                loss.backward()
                if step == crash:
                    raise RuntimeError("out of\nmemory")
                optimizer.step()
    return path


ENDED = "an exception ended {0}'s recording (RuntimeError: out of memory)"
CASES = {
    "shorter": ({"steps": 2}, ["steps: {1}'s 2, which {0} lacks"]),
    "crashed": (
        {"steps": 3, "crash": 1},
        [f"steps: {{1}}'s 2, which {{0}} lacks; {ENDED}", *(
            f"{stage} of step 1: all of {{1}}'s" for stage in ("clipped", "moments", "updated"))],
    ),
    "crashed in the last step": (
        {"steps": 3, "crash": 2},
        [f"steps: {ENDED}", *(
            f"{stage} of step 2: all of {{1}}'s" for stage in ("clipped", "moments", "updated"))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_a_shorter_recording_lacks_is_named(case, swapped, tmp_path):
    options, lines = CASES[case]
    whole, part = _record(tmp_path / "a.trace", 3), _record(tmp_path / "b.trace", **options)
    sides = (part, whole) if swapped else (whole, part)
    difference = compare_sides(*map(Recorded, sides))
    names = ("A", "B") if swapped else ("B", "A")
    assert difference.verdict == "INCOMPLETE"
    said = (*difference.left_out, *difference.b_alone)
    assert [each for each in said if "learning rate" not in each] == [
        line.format(*names) for line in lines
    ]
    assert len(difference.left_out) == 1 or not swapped


def test_a_stage_that_b_alone_has_in_a_step_does_not_count(tmp_path):
    for name, steps in (("a", [0, 2]), ("b", [0, 1, 2])):
        with parity.record(tmp_path / name) as trace:
            for step in range(3):
                with trace.step(x=torch.ones(3)):
                    if step in steps:
                        trace.log("loss", 0.5)
    a, b = (Recorded(tmp_path / name) for name in "ab")
    difference = compare_sides(a, b)
    assert (difference.verdict, difference.left_out) == ("EQUAL", ())
    assert difference.b_alone == ("loss of step 1: all of B's",)
    assert compare_sides(b, a).left_out == ("loss of step 1: all of A's",)


def test_a_difference_before_the_end_is_still_different(tmp_path, capsys):
    whole = _record(tmp_path / "a.trace", 3)
    part = _record(tmp_path / "b.trace", 3, crash=2, rate=1e-2)
    assert main(["diff", str(whole), str(part)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"not compared: steps: {ENDED.format('B')}" in said
    assert "learning rate" in said
    assert f"DIFFERENT: {whole} and {part}" in said
