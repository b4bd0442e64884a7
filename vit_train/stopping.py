"""How a run is told to stop: the first signal is answered at once, the second ends it.

Python runs a signal's handler between two instructions of the main thread, which may wait for a device
or a compiler for minutes. So signals are read by a thread of their own.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 3.0
"""Seconds that a run has to end in good order when it is told a second time."""


class Stopping:
    """Whether a run has been told to stop; used in the main thread, see `stop_signals`.

    Args:
        start: updates done so far; calling it, after every other, gives whether to stop.
        say: prints a line, from any thread.
        writing: whether a checkpoint is being written.
        leave: called before the process ends at once.
    """

    def __init__(
        self,
        start: int,
        say: Callable[[str], None],
        writing: Callable[[], bool],
        leave: Callable[[], None],
    ) -> None:
        self._step, self._say, self._writing, self._leave = start, say, writing, leave
        self._told = self._answered = self._now = False
        self._ended, self._ending = threading.Event(), threading.Lock()

    def __call__(self) -> bool:
        """Whether to stop."""
        self._step += 1
        return self._told

    def handle(self, *_: object) -> None:
        """What the main thread does at a signal: nothing at the first, of which it is asked."""
        self._told = True
        if self._now:
            raise KeyboardInterrupt

    def listen(self, signals: socket.socket) -> None:
        """Answer signals as they come, until the other end is closed.

        Args:
            signals: gives the number of each, a byte.
        """
        while numbers := signals.recv(1):
            if numbers[0] not in SIGNALS or self._now:
                continue
            if not self._answered:
                self._answered = self._told = True
                self._say(f"stopping after step {self._step + 1}; again to stop now")
                continue
            while self._writing() and not self._ended.is_set():
                time.sleep(0.02)
            with self._ending:
                if self._ended.is_set():
                    continue
                self._now = True
                _thread.interrupt_main(signal.SIGINT)
            if not self._ended.wait(GRACE):  # in a long call, which no signal reaches
                self._leave()
                os._exit(128 + signal.SIGINT)

    def end(self) -> None:
        """The run has come out of its loop."""
        with self._ending:
            self._ended.set()


@contextmanager
def stop_signals(
    start: int,
    say: Callable[[str], None],
    writing: Callable[[], bool],
    leave: Callable[[], None],
) -> Iterator[Callable[[], bool]]:
    """Take SIGINT and SIGTERM as `Stopping` says, for the duration; what is yielded is asked after every
    step."""
    stopping = Stopping(start, say, writing, leave)
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may handle signals
        return
    theirs, ours = socket.socketpair()
    ours.setblocking(False)
    listener = threading.Thread(target=stopping.listen, args=(theirs,), name="signals", daemon=True)
    usual = {number: signal.signal(number, stopping.handle) for number in SIGNALS}
    before = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    listener.start()
    try:
        yield stopping
    finally:
        stopping.end()
        signal.set_wakeup_fd(before)
        for number, handler in usual.items():
            signal.signal(number, handler)
        ours.close()
        listener.join()
        theirs.close()


@contextmanager
def agreed_stop(agreed: Callable[[int], bool], start: int) -> Iterator[Callable[[], bool]]:
    """The same for processes that train together: all end after the same step, whichever was told to.

    Args:
        agreed: given the updates done, whether that is now.
        start: updates done so far; what is yielded has to be asked after every other.
    """
    steps = count(start + 1)
    yield lambda: agreed(next(steps))
