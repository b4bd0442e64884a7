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

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 3.0
"""Seconds in which a run must end in good order after a second signal."""


class Stopping:
    """A check whether a run has been told to stop; used in the main thread, see `stop_signals`.

    Args:
        start: updates done so far; call the object after every later update.
        last: updates done at the end of the run.
        say: function that prints a line, from any thread.
        writing: function that returns whether a checkpoint is being written.
        leave: function called before the process ends at once.
        agreed: for processes that train together: given the updates done, returns whether all stop now,
            as one of them was sent SIGTERM.
    """

    def __init__(
        self,
        start: int,
        last: int,
        say: Callable[[str], None],
        writing: Callable[[], bool],
        leave: Callable[[], None],
        agreed: Callable[[int], bool] | None = None,
    ) -> None:
        self._step, self._last, self._ahead = start, last, 1
        self._say, self._writing, self._leave, self._agreed = say, writing, leave, agreed
        self.should_stop = False
        """Whether to stop; of processes that train together, when they have agreed to."""
        self._answered = self._now = False
        self._ended, self._ending = threading.Event(), threading.Lock()

    def __call__(self) -> bool:
        """Count an update; return whether to stop."""
        self._step += 1
        if self._agreed is not None and not self.should_stop and self._agreed(self._step):
            self.should_stop = True
            self._say(f"stopping after step {self._step}: a process was told to stop")
        return self.should_stop

    @contextmanager
    def between_steps(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether to leave what is done between two updates, which
        processes that train together never do."""
        self._ahead = 0
        try:
            yield lambda: self.should_stop and self._agreed is None
        finally:
            self._ahead = 1

    def handle(self, *_: object) -> None:
        """Handle a signal in the main thread: note it, and raise KeyboardInterrupt if the run must
        end now."""
        self.should_stop = self.should_stop or self._agreed is None
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
                self._answered = True
                if self._agreed is None:
                    self.should_stop = True
                    step = min(self._step + self._ahead, self._last)
                    self._say(f"stopping after step {step}; again to stop now")
                else:
                    self._say("stopping when all processes agree on a step; again to stop now")
                    os.kill(os.getpid(), signal.SIGTERM)  # which they agree on
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
    last: int,
    say: Callable[[str], None],
    writing: Callable[[], bool],
    leave: Callable[[], None],
    agreed: Callable[[int], bool] | None = None,
) -> Iterator[Stopping]:
    """Handle SIGINT and SIGTERM by a `Stopping` for the duration; call the yielded object after every
    step. SIGTERM is left to those who make processes that train together agree."""
    stopping = Stopping(start, last, say, writing, leave, agreed)
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # only the main thread may handle signals
        return
    theirs, ours = socket.socketpair()
    ours.setblocking(False)
    listener = threading.Thread(target=stopping.listen, args=(theirs,), name="signals", daemon=True)
    handled = SIGNALS if agreed is None else (signal.SIGINT,)
    usual = {number: signal.signal(number, stopping.handle) for number in handled}
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
