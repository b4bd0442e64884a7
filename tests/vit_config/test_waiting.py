"""The line that says what is being done: after a while, on a terminal, harmless, gone at the end."""

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


def shown(stream, *, terminal, patience):
    console = screen(file=stream, force_terminal=terminal, width=60)
    return Waiting("first", console=console, patience=patience)


def test_it_says_what_is_being_done():
    stream = Watched("a\\x1b[2Jb")
    with shown(stream, terminal=True, patience=0.0) as waiting:
        waiting.now("a\x1b[2Jb")
        assert stream.seen.wait(20)
    assert "\x1b[2K" in stream.getvalue()  # the line was erased


@pytest.mark.parametrize(("terminal", "patience"), [(False, 0.0), (True, 60.0)])
def test_it_says_nothing_to_a_file_nor_at_once(terminal, patience):
    stream = Watched("first")
    with shown(stream, terminal=terminal, patience=patience) as waiting:
        waiting.now("second")
        assert not stream.seen.wait(0.05)
    assert "first" not in stream.getvalue()
