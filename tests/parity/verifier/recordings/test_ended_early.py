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
            f"{stage} of step 1: {{1}}'s alone" for stage in ("clipped", "moments", "updated"))],
    ),
    "crashed in the last step": (
        {"steps": 3, "crash": 2},
        [f"steps: {ENDED}", *(
            f"{stage} of step 2: {{1}}'s alone" for stage in ("clipped", "moments", "updated"))],
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
    assert [each for each in difference.left_out if "learning rate" not in each] == [
        line.format(*names) for line in lines
    ]


def test_a_difference_before_the_end_is_still_different(tmp_path, capsys):
    whole = _record(tmp_path / "a.trace", 3)
    part = _record(tmp_path / "b.trace", 3, crash=2, rate=1e-2)
    assert main(["diff", str(whole), str(part)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"not compared: steps: {ENDED.format('B')}" in said
    assert "learning rate" in said
    assert f"DIFFERENT: {whole} and {part}" in said
