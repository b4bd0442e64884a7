"""One checkpoint to one target and back: run, or by names and shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.reading.libraries.installed import NoModelError, misfits
from parity.porting.verification.runs import LogitsCache
from parity.porting.verification.verified import Verified, convert_verified
from parity.porting.writing.conversion_plan import plan
from parity.porting.writing.reopened import compare
from tests.support.unread import as_written, unread
from vit_config import ConfigError, WeightsError

OWN = "parity"
"""The project's own dialect, which the twins read and no library does."""


class Way(NamedTuple):
    """One checkpoint to one target and back."""

    target: str
    symbol: str
    """``=`` equal, ``~`` equal after a rewriting, ``-`` refused, ``!`` different."""
    said: str = ""
    """The rewrite, the reason of a refusal, or the difference."""
    back: str = ""
    """The same symbols, of the way back to the source's dialect."""
    back_said: str = ""
    error: float | None = None
    """The largest relative error of logits or of the pooled vector, of those that were run."""
    unrun: tuple[str, ...] = ()
    """Libraries of both ends that had no model of it, and why; one that failed is a difference."""


def compared(source: Checkpoint, target: str, folder: Path) -> Way:
    """Compare by names and shapes: what would be written, read with and without the project's header."""
    try:
        there = plan(source, target)
    except ConfigError as error:
        return Way(target, "-", reason(error, folder))
    said = "; ".join(there.state.said)
    symbol, unrun = "~" if said else "=", []
    try:
        again = _reread(there, folder / target, unrun)
    except (ConfigError, WeightsError) as error:
        return Way(target, "!", reason(error, folder))
    try:
        back = plan(again, source.dialect.name)
    except ConfigError as error:
        return Way(target, symbol, said, "-", reason(error, folder), unrun=(*unrun,))
    try:
        _reread(back, folder / f"{target}-back", unrun)
    except (ConfigError, WeightsError) as error:
        return Way(target, symbol, said, "!", reason(error, folder))
    if lost := _differing(source, {name: each.shape for name, each in back.tensors.items()}):
        return Way(target, symbol, said, "~", f"other tensors: {lost}", unrun=(*unrun,))
    rewritten = "; ".join(back.state.said)
    return Way(target, symbol, said, "~" if rewritten else "=", rewritten, unrun=(*unrun,))


def ran(source: Checkpoint, target: str, folder: Path, runs: LogitsCache) -> Way:
    """Compare by running: the source, what was written, and what was written of that."""
    try:
        there = convert_verified(source, to=target, out=folder / target, runs=runs)
    except ConfigError as error:
        return Way(target, "-", reason(error, folder))
    said = "; ".join(there.converted.target.state.said)
    symbol, error, unrun, problem = judged(there)
    if symbol == "!":
        return Way(target, "!", problem, error=error)
    out, name = folder / f"{target}-back", source.dialect.name
    try:
        back = convert_verified(read_checkpoint(there.path), to=name, out=out, runs=runs)
    except ConfigError as refusal:
        return Way(target, symbol, said, "-", reason(refusal, folder), error, unrun)
    back_symbol, worse, more, problem = judged(back)
    unrun = tuple(dict.fromkeys((*unrun, *more)))
    if back_symbol == "!":
        return Way(target, symbol, said, "!", problem, max(error, worse))
    written = read_checkpoint(back.path)
    rewritten = "; ".join(back.converted.target.state.said)
    if lost := _differing(source, {name: each.shape for name, each in written.tensors.items()}):
        back_symbol, rewritten = "~", f"other tensors: {lost}"
    elif not said + rewritten and (other := _other_bits(source, written)):
        back_symbol, rewritten = "!", f"other values in {other}"
    return Way(target, symbol, said, back_symbol, rewritten, max(error, worse), unrun)


def reason(error: Exception, folder: Path) -> str:
    """Return a refusal's message without the path that it may begin with."""
    path, _, said = str(error).replace(f"{folder}/", "").partition(": ")
    return f"{path}: {said}" if " " in path and said else said or path


def _reread(there, folder: Path, unrun: list[str]) -> Checkpoint:
    """Read what would be written as a reader would, and against the library's own class.

    Args:
        unrun: is told why where the library has none.

    Raises:
        WeightsError: it is another model.
    """
    again = read_checkpoint(as_written(there, folder))
    compare(again, there)
    sidecars = again.opened.sidecars
    if sidecars.are_of(there.dialect):
        shapes = {name: stored.shape for name, stored in again.container.tensors.items()}
        compare(read_checkpoint(unread(shapes, folder, sidecars.contents)), there)
    try:
        problems = misfits(again)
    except NoModelError as error:
        unrun += [str(error)] if again.dialect.name != OWN else []
        return again
    if problems:
        raise WeightsError("; ".join(problems[:4]))
    return again


def judged(done: Verified) -> tuple[str, float, tuple[str, ...], str]:
    """The symbol, the largest error, which libraries had no model, and what differs."""
    verification = done.verification
    errors = [row.error for row in verification.rows if row.error is not None]
    symbol = "~" if done.converted.target.state.said else "="
    own = f" reads {OWN}"
    unrun = tuple(
        s for s in verification.not_run if not s.startswith("pixels: ") and not s.endswith(own)
    )
    failed = [said for said in unrun if " failed with " in said or " the twins (" in said]
    problem = "; ".join([verification.problem] * (not verification.passed) + failed)
    return "!" if problem else symbol, max(errors, default=0.0), unrun, problem


def _differing(source: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> str:
    """Return the tensors in which the way back differs from the source, three at most."""
    body = source.dialect.body
    own = {name.removeprefix(body): each.shape for name, each in source.tensors.items()}
    back = {name.removeprefix(body): shape for name, shape in shapes.items()}
    wrong = [name for name in own if name in back and back[name] != own[name]]
    wrong += [name for name in own if name not in back]
    return ", ".join(wrong[:3])


def _other_bits(source: Checkpoint, back: Checkpoint) -> str:
    """Which tensors came back with other bits, three at most; a name without its body, as above."""
    body = source.dialect.body
    tensors = {name.removeprefix(body): each for name, each in back.tensors.items()}
    wrong = [
        name
        for name, each in source.tensors.items()
        if not np.array_equal(each.load(), tensors[name.removeprefix(body)].load(), equal_nan=True)
    ]
    return ", ".join(wrong[:3])
