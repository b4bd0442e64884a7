"""Runs that are told to stop at a chosen moment, without a signal."""

from contextlib import contextmanager

import vit_train.conduct as conduct_room
from vit_train.stopping import Stopping


class _Told(Stopping):
    """Told while some update ran, or when something was begun after one; counted from the start."""

    def __init__(self, while_update, after_update, *tell):
        super().__init__(*tell)
        self.while_update, self.after_update, self.updates = while_update, after_update, 0

    def __call__(self):
        self.updates += 1
        self.should_stop = self.should_stop or self.updates == self.while_update
        return super().__call__()

    @contextmanager
    def between_steps(self):
        self.should_stop = self.should_stop or self.updates == self.after_update
        with super().between_steps() as leaves:
            yield leaves


def stopping_after(steps, monkeypatch):
    """As if SIGINT came while step number `steps` ran."""
    _patch(monkeypatch, steps, None)


def stopping_in_evaluation(steps, monkeypatch):
    """As if SIGINT came at the beginning of the evaluation after `steps` steps."""
    _patch(monkeypatch, None, steps)


def _patch(monkeypatch, *stops):
    @contextmanager
    def stop_signals(*tell):
        yield _Told(*stops, *tell)

    monkeypatch.setattr(conduct_room, "stop_signals", stop_signals)
