"""Checkpoints by time and by steps, and what a run logs that goes on from one."""

import pytest

from tests.vit_train.test_train_loop import program, run
from vit_config import ConfigError
from vit_train.folder import saving
from vit_train.folder.saving import NO_LIMIT, Due, SaveEvery, read_save_every
from vit_train.loop import IN_FLIGHT


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("10m", SaveEvery(600.0)),
        ("1.5h", SaveEvery(5400.0)),
        ("90s", SaveEvery(90.0)),
        ("500steps", SaveEvery(None, 500)),
        ("10m, 1 step", SaveEvery(600.0, 1)),
        ("never", NO_LIMIT),
    ],
)
def test_how_much_may_be_lost_is_understood(text, every):
    assert read_save_every(text) == every


@pytest.mark.parametrize("text", ["10", "0m", "", "2h,3m", "1.5steps", "-1s", "10 minutes"])
def test_what_it_cannot_mean_is_refused(text):
    with pytest.raises(ConfigError, match=f"^--save-every {text}: give a time, such as 90s"):
        read_save_every(text)


def test_time_counts_from_the_last_checkpoint(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    due = Due(SaveEvery(60.0, 7))
    assert [due(step, False) for step in (1, 7, 8, 14)] == [False, True, False, True]
    now[0] = 61.0
    assert due(15, False)
    due.saved()
    assert not due(15, False)
    now[0] = 120.0
    assert not due(16, False)
    assert not Due(NO_LIMIT)(7, True)


def test_several_processes_ask_their_leader_at_lines_of_the_log_only(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])

    def leader_says_yes(late):
        asked.append(late)
        return True

    due = Due(SaveEvery(60.0), leader_says_yes)
    assert [due(1, False), due(2, True)] == [False, True]
    assert asked == [False]


def test_a_checkpoint_between_two_lines_changes_no_line():
    losses = program(lambda step: 0.1 * step**2)
    _, whole = run(iter([{}] * 6), steps=losses)
    saved, events = {}, []
    options = {"due": lambda step, logs: step == 3, "keep_unlogged": saved.__setitem__}
    _, first = run(iter([{}] * 6), steps=losses, stop_after=3, hooks=options)
    assert [step for step, _ in first["log"]] == [2]
    assert [step for step, _ in first["save"]] == [3]
    options["handed_out"] = events.append
    _, second = run(iter([{}] * 3), steps=losses, start=3, unlogged=saved[3], hooks=options)
    values = [[(step, means["loss"]) for step, means in each["log"]] for each in (whole, first, second)]
    assert values[0] == values[1] + values[2]
    assert events == [4, 5, 6]


def test_devices_are_handed_one_step_ahead():
    flying, most = set(), []
    steps = program()
    compute = steps.train_step

    def hand_out(state, batch):
        state, metrics = compute(state, batch)
        flying.add(state.averaged)
        most.append(len(flying))
        return state, {**metrics, "step": state.averaged}

    steps.train_step = hand_out
    steps.fence = lambda metrics: lambda: flying.discard(metrics["step"])
    run(iter([{}] * 6), steps=steps)
    assert max(most) == IN_FLIGHT
