"""A run that was stopped and resumed beside one that was not: what was not restored is named."""

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose

STEPS, STOPPED = 7, 3
X = torch.from_numpy(np.random.default_rng(0).normal(size=(STEPS, 6, 5)))
Y = torch.from_numpy(np.random.default_rng(1).integers(0, 3, (STEPS, 6)))


class Loop:
    """Everything that a loop holds between two steps."""

    def __init__(self, drop=0.0):
        torch.manual_seed(4)
        self.model = nn.Sequential(
            nn.Linear(5, 4), nn.Tanh(), nn.Dropout(drop), nn.Linear(4, 3)
        ).double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, 20)
        self.average = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.position = 0

    def state(self):
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": {n: a.clone() for n, a in self.average.items()},
            "position": self.position,
            "random": torch.get_rng_state(),
        }

    def restore(self, state, lost):
        if lost != "optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        if lost == "schedule":
            for group in self.optimizer.param_groups:
                group["lr"] = 0.01
        else:
            self.schedule.load_state_dict(state["schedule"])
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.get_last_lr()[0]
        named = dict(self.model.named_parameters())
        kept = state["average"] if lost != "average" else {n: p.detach() for n, p in named.items()}
        self.average = {n: a.clone() for n, a in kept.items()}
        self.position = state["position"] if lost != "position" else 0
        if lost != "random":
            torch.set_rng_state(state["random"])

    def run(self, path, steps):
        with parity.record(path, self.model, optimizer=self.optimizer) as trace:
            for _ in range(steps):
                x, y = X[self.position], Y[self.position]
                with trace.step(images=x, labels=y):
                    self.optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(self.model(x), y)
                    trace.log("loss", loss)
                    loss.backward()
                    self.optimizer.step()
                    self.schedule.step()
                    for name, value in self.model.named_parameters():
                        self.average[name].mul_(0.9).add_(value.detach(), alpha=1 - 0.9)
                    trace.log("updated", {n: a.clone() for n, a in self.average.items()}, port="ema")
                self.position += 1
        return Recorded(path)


def compared(tmp_path, lost, drop=0.0):
    whole = Loop(drop).run(tmp_path / "whole.trace", STEPS)
    stopped = Loop(drop)
    stopped.run(tmp_path / "first.trace", STOPPED)
    weights, state = stopped.model.state_dict(), stopped.state()
    later = Loop(drop)
    later.model.load_state_dict(weights)
    later.restore(state, lost)
    left = STEPS - STOPPED
    return diagnose(compare_sides(whole, later.run(tmp_path / "resumed.trace", left)))


@pytest.mark.parametrize(
    ("lost", "name"),
    [
        ("optimizer", "moments-start"),
        ("schedule", "schedule-restart"),
        ("average", "ema-start"),
        ("position", "data-position"),
        ("random", "random-state"),
    ],
)
def test_what_was_not_restored_is_named_in_the_first_step(tmp_path, lost, name):
    diagnosis = compared(tmp_path, lost, drop=0.4 if lost == "random" else 0.0)
    assert diagnosis.verdict == "DIFFERENT"
    assert diagnosis.causes, diagnosis.places
    assert diagnosis.causes[0].name == name
    assert diagnosis.places[0].divergences[0].judged.site.step == STOPPED


@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_a_run_that_was_resumed_rightly_is_equal(tmp_path, drop):
    diagnosis = compared(tmp_path, None, drop)
    assert diagnosis.verdict == "EQUAL"
    assert any("it resumes" in note for note in diagnosis.difference.notes)
