"""The log of a run's measurements: one JSON object per line, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import (  # generated, without types
    Event,  # pyright: ignore[reportAttributeAccessIssue]
    SessionLog,  # pyright: ignore[reportAttributeAccessIssue]
)
from tensorboard.compat.proto.summary_pb2 import (
    Summary,  # pyright: ignore[reportAttributeAccessIssue]
)
from tensorboard.summary.writer.record_writer import RecordWriter

from vit_config import CheckpointError, MissingFileError
from vit_config.files.foreign import parse_json, read_bytes
from vit_config.files.weights_file import write_atomically

FILE = "log.jsonl"
LONGEST = 2**28
"""Most bytes of a log that is read: those of two million lines."""
UNLOGGED = "unlogged"
"""The kind of event that holds metrics step by step, whose mean the next event of training logs."""


class RunLog:
    """A log in ``log.jsonl`` and ``tensorboard/``; close it, or use it in a `with` statement.

    Args:
        run_dir: the folder of both.
        start_step: events of later steps, left by a run that was interrupted after its last
            checkpoint, are dropped, and so is the test at the end: they will be written again.
    """

    def __init__(self, run_dir: Path, *, start_step: int):
        path = run_dir / FILE
        if path.is_file():
            events = [
                event
                for event in read_log(run_dir)
                if event["step"] < start_step + (event["kind"] != "test")
            ]
            write_atomically(path, "".join(json.dumps(event) + "\n" for event in events).encode())
        self._file = path.open("a")
        board = run_dir / "tensorboard"
        board.mkdir(parents=True, exist_ok=True)
        # not tensorboard's EventFileWriter, whose thread prints what goes wrong in it
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._board = RecordWriter((board / name).open("ab"))
        self._show(file_version="brain.Event:2")
        if start_step:  # tells TensorBoard to forget the same lines
            again = SessionLog(status=SessionLog.SessionStatus.START)
            self._show(step=start_step + 1, session_log=again)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Add one event; numbers also become TensorBoard curves called ``KIND/NAME``.

        Args:
            kind: ``start``, ``train``, ``validation``, ``test``, ``damaged`` or `UNLOGGED`.
            step: updates done so far.
        """
        now = time.time()
        self._file.write(json.dumps({"kind": kind, "step": step, "time": now, **values}) + "\n")
        self._file.flush()
        scalars = [
            Summary.Value(tag=f"{kind}/{name}", simple_value=float(value))
            for name, value in values.items()
            if isinstance(value, int | float)
        ]
        if scalars:
            self._show(wall_time=now, step=step, summary=Summary(value=scalars))

    def _show(self, **event: Any) -> None:
        self._board.write(Event(**{"wall_time": time.time(), **event}).SerializeToString())
        self._board.flush()

    def close(self) -> None:
        """Write out events still in memory."""
        self._file.close()
        self._board.close()


class NoLog:
    """A log for a process whose measurements another process writes."""

    def __enter__(self) -> NoLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Do nothing."""


MEND = "mend the line, or remove it: what it told of the run is then not drawn"


def read_log(run_dir: Path) -> list[dict[str, Any]]:
    """Read the events of a run, in order; a last line that was cut off is left out.

    Raises:
        MissingFileError: the folder has no log.
        CheckpointError: a line is not an event.
    """
    path = run_dir / FILE
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give the folder of a training run")
    try:
        content = read_bytes(path, LONGEST)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    *lines, last = content.split(b"\n")  # a whole file ends in a newline
    del last
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = parse_json(line)
        except ValueError as error:  # not JSON, or not even text
            reason = getattr(error, "msg", None) or str(error)
            raise CheckpointError(f"{path}, line {number}: not JSON ({reason}); {MEND}") from None
        if not (isinstance(event, dict) and "kind" in event and isinstance(event.get("step"), int)):
            raise CheckpointError(f"{path}, line {number}: not an event of a training run; {MEND}")
        events.append(event)
    return events


def unlogged(run_dir: Path, step: int) -> list[dict[str, float]]:
    """Return the metrics of the steps between the last logged training event and a step's checkpoint."""
    return next(
        (e["metrics"] for e in read_log(run_dir) if (e["kind"], e["step"]) == (UNLOGGED, step)), []
    )


def taken_again(run_dir: Path, start_step: int) -> str | None:
    """Return a note that a run goes on from a checkpoint older than its log, as the run was killed
    or later checkpoints are gone; None otherwise."""
    if not (run_dir / FILE).is_file():
        return None
    last = max((event["step"] for event in read_log(run_dir)), default=0)
    if last <= start_step:
        return None
    begin = f"from step {start_step}" if start_step else "from the start, for there is no checkpoint"
    return f"the log goes to step {last}, and the run goes on {begin}; what is between is trained again"
