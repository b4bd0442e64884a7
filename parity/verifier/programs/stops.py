"""Lines of the user's code at which gradients stop, noted as they run; at some of them they may pass."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from parity.measure.versions.of_jax import is_stop, stopping, traced_anew
from parity.verifier.programs.sources import is_user

Where = tuple[str, int]
"""File and number of a line."""


@dataclass(frozen=True)
class Stop:
    """A line at which gradients stop."""

    word: str
    """What the line calls: stop_gradient, detach or no_grad."""
    function: str
    """The function that the line is in."""


@contextmanager
def stops(opened: Collection[Where] = ()) -> Iterator[dict[Where, Stop]]:
    """Note the lines of the user's code that stop gradients while entered.

    Args:
        opened: lines at which gradients pass all the same.
    """
    noted: dict[Where, Stop] = {}

    def passes(frame: FrameType | None, word: str) -> bool:
        """Note a call of the frame's, and return whether gradients pass it."""
        if frame is None or not _may_be_user(frame.f_code.co_filename):
            return False
        where = frame.f_code.co_filename, frame.f_lineno
        noted.setdefault(where, Stop(word, frame.f_code.co_name))
        return where in opened

    with ExitStack() as stack:
        if "jax" in sys.modules:
            stack.enter_context(traced_anew(f"gradients pass at {sorted(opened)}"))
            stack.enter_context(_of_jax(passes))
        if "torch" in sys.modules:
            stack.enter_context(_of_torch(passes))
        yield noted


def _may_be_user(file: str) -> bool:
    """Return whether a file may be the user's; what has no file, as of a notebook, may be, too."""
    return file.startswith("<") or is_user(file)


@contextmanager
def _of_jax(passes: Any) -> Iterator[None]:
    holder, name = stopping()
    plain = getattr(holder, name, None)
    if plain is None:  # a version of JAX that has another
        yield
        return

    def stopped(x: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and is_stop(frame.f_code.co_filename, frame.f_code.co_name):
            frame = frame.f_back
        return x if passes(frame, "stop_gradient") else plain(x)

    setattr(holder, name, stopped)
    try:
        yield
    finally:
        setattr(holder, name, plain)


@contextmanager
def _of_torch(passes: Any) -> Iterator[None]:
    import torch

    plain, enter = torch.Tensor.detach, torch.no_grad.__enter__

    def detach(tensor: Any) -> Any:
        return tensor if passes(sys._getframe(1), "detach") else plain(tensor)

    def entered(own: Any) -> None:
        enter(own)
        if passes(sys._getframe(1), "no_grad"):
            torch.set_grad_enabled(own.prev)

    torch.Tensor.detach, torch.no_grad.__enter__ = detach, entered  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.detach, torch.no_grad.__enter__ = plain, enter  # type: ignore[method-assign]
