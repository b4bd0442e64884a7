"""Signals that stop a run: the first is answered at once, the second ends the run.

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
"""Seconds in which a run must end in good order after a second signal."""


class Stopping:
    """A check whether a run has been told to stop; used in the main thread, see `stop_signals`.

    Args:
        start: updates done so far; call the object after every later update.
        say: function that prints a line, from any thread.
        writing: function that returns whether a checkpoint is being written.
        leave: function called before the process ends at once.
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
        """Count an update; return whether to stop."""
        self._step += 1
        return self._told

    def handle(self, *_: object) -> None:
        """Handle a signal in the main thread: note it, and raise KeyboardInterrupt if the run must
        end now."""
        self._told = True
        if self._now:
            raise KeyboardInterrupt

    def listen(self, signals: socket.socket) -> None:
        """Answer signals as they come, until the other end is closed.

        Args:
            signals: socket that delivers the number of each signal as a byte.
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
        """Note that the run has left its loop."""
        with self._ending:
            self._ended.set()


@contextmanager
def stop_signals(
    start: int,
    say: Callable[[str], None],
    writing: Callable[[], bool],
    leave: Callable[[], None],
) -> Iterator[Callable[[], bool]]:
    """Handle SIGINT and SIGTERM by a `Stopping` for the duration; call the yielded object after
    every step."""
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
    """Stop processes that train together after the same step, whichever of them was told to.

    Args:
        agreed: given the updates done, returns whether to stop now.
        start: updates done so far; call the yielded function after every later update.
    """
    steps = count(start + 1)
    yield lambda: agreed(next(steps))
