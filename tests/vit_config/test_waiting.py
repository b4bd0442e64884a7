"""The line that says what is being done, how far it is, and how long it takes yet: after a while, on a
terminal, harmless, gone at the end."""

import io
from threading import Event

import pytest

from vit_config.screen import screen
from vit_config.waiting import Pace, Waiting

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


def shown(stream, *work, terminal=True, patience=0.0, pace=None):
    console = screen(file=stream, force_terminal=terminal, width=90)
    return Waiting("first", *work, console=console, patience=patience, pace=pace)


def test_it_says_what_is_being_done():
    stream = Watched("a\\x1b[2Jb")
    with shown(stream) as waiting:
        waiting.now("a\x1b[2Jb")
        assert stream.seen.wait(20)
    assert "\x1b[2K" in stream.getvalue()  # the line was erased
    assert "left" not in stream.getvalue()  # nobody knows


@pytest.mark.parametrize(("terminal", "patience"), [(False, 0.0), (True, 60.0)])
def test_it_says_nothing_to_a_file_nor_at_once(terminal, patience):
    stream = Watched("first")
    with shown(stream, 2.0, terminal=terminal, patience=patience, pace=3600.0) as waiting:
        waiting.now("second", 1.0)
        assert not stream.seen.wait(0.05)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("known", ["expected", "counted"])
def test_on_a_terminal_there_is_a_bar_with_the_time_left(known):
    stream = Watched("about 2:00:00 left" if known == "expected" else "about 0:00:00 left")
    with shown(stream, 1.0, 1.0, pace=3600.0 if known == "expected" else None) as waiting:
        if known == "counted":
            waiting.now("images", 7)
            assert list(waiting.over("abcdefg", 7)) == list("abcdefg")
        assert stream.seen.wait(20)
    assert "━" in stream.getvalue()


def test_the_time_left_follows_what_stages_took():
    pace = Pace()
    assert pace.left(0.0) is None
    pace.begin(0.0, 2.0, 6.0)
    assert pace.left(1.0) is None  # nothing is done
    pace.note_share(0.5)
    assert pace.left(3.0) == 3.0 + 3 * 6.0
    pace.begin(4.0, 4.0, 2.0)  # the first took 2 seconds for a unit of work
    assert pace.left(5.0) == 7.0 + 4.0
    assert pace.left(24.0) == 2.0 + 4.0  # it takes longer than that: nobody knows how much
    pace.begin(30.0, 0.0, 0.0)
    assert pace.left(31.0) is None


def test_what_was_expected_gives_way_to_what_is_measured():
    pace = Pace(1.0)
    pace.begin(0.0, 1.0, 9.0)
    assert pace.left(0.5) == 9.5
    pace.begin(5.0, 9.0, 0.0)  # 5 times as long: 1 unit of that beside 2 that were expected
    assert pace.left(5.0) == pytest.approx(9 * 7 / 3)
    pace.note_share(0.5)
    assert pace.left(27.5) == pytest.approx(4.5 * (27.5 + 2) / 7.5)
