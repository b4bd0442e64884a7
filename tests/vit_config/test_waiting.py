"""The line that says what is being done, how far it is, and how long it takes yet: after a while, on a
terminal, harmless, gone at the end."""

import io
from threading import Event

import pytest

from vit_config.screen import screen
from vit_config.waiting import Waiting

pytestmark = pytest.mark.quick


class Watched(io.StringIO):
    """A stream that lets a test wait until a text was written."""

    def __init__(self, text):
        super().__init__()
        self.text, self.seen = text, Event()

    def write(self, text):
        if self.text in text:
            self.seen.set()
        return super().write(text)


def shown(stream, *work, terminal=True, patience=0.0, now=None):
    console = screen(file=stream, force_terminal=terminal, width=90)
    if now is not None:
        console.get_time = lambda: now[0]
    return Waiting("first", *work, console=console, patience=patience)


def test_it_says_what_is_being_done():
    stream = Watched("a\\x1b[2Jb")
    with shown(stream) as waiting:
        waiting.now("a\x1b[2Jb")
        assert stream.seen.wait(20)
    assert "\x1b[2K" in stream.getvalue()  # the line was erased
    assert "-:--" not in stream.getvalue()  # nobody knows


@pytest.mark.parametrize(("terminal", "patience"), [(False, 0.0), (True, 60.0)])
def test_it_says_nothing_to_a_file_nor_at_once(terminal, patience):
    stream = Watched("first")
    with shown(stream, 2.0, terminal=terminal, patience=patience) as waiting:
        waiting.now("second", 1.0)
        assert not stream.seen.wait(0.05)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("counted", [False, True])
def test_on_a_terminal_there_is_a_bar_with_the_time_left(counted):
    """By the pace of the stages that are over, or of the images so far."""
    now, stream = [0.0], Watched("0:00:05" if counted else "2:00:00")
    with shown(stream, 1.0, 7202.0, now=now) as waiting:
        if counted:
            waiting.now("images", 7.0)
            for number in waiting.over(range(7), 7):
                now[0] += 1.0
                if number == 2:  # two are done
                    break
        else:
            now[0] += 1.0
            waiting.now("second", 2.0, 7200.0)
            now[0] += 2.0
            waiting.now("third", 7200.0)
        assert stream.seen.wait(20)
    assert "━" in stream.getvalue()


def test_a_stage_of_unknown_length_has_no_time_left():
    stream = Watched("another")
    with shown(stream, 1.0, 1.0) as waiting:
        waiting.now("second", 1.0)
        waiting.now("another")
        assert stream.seen.wait(20)
        assert waiting._line.tasks[0].time_remaining is None
        assert not waiting._line.tasks[0].finished
