"""The line of the user's code that an operation comes from: the innermost outside the frameworks."""

from __future__ import annotations

import functools
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from parity.verifier.programs.operation import BUILT, Source

FRAMEWORKS = frozenset(
    {
        "jax", "jaxlib", "flax", "optax", "haiku", "equinox", "chex", "jaxtyping", "beartype",
        "numpy", "scipy", "torch", "einops", "functorch", "keras", "typeguard", "pytest", "_pytest",
        "pluggy", "opt_einsum",
    }
)  # fmt: skip
"""Packages whose lines say nothing of the model; what is written in any other is the model's own."""

MODELS = ("torch/nn/modules/transformer.py",)
"""Files of frameworks that hold models, not layers: their lines say more than the line of the call."""

CALLERS = 4
"""How many callers of a line are kept."""
_STDLIB = sysconfig.get_paths()["stdlib"]
_PACKAGE = Path(__file__).parents[2]
_RUNS = f"{_PACKAGE / 'verifier'}/"
_ASKS = (f"{_RUNS}programs/sides.py", f"{_RUNS}programs/backward.py")
"""The files that record a side, outside of which no frame is the program's."""
_WATCHES = tuple(f"{_RUNS}programs/{each}.py" for each in ("built", "stops", "transformations"))
"""The files whose frames stand between a layer, what an optimiser is made of, or what stops a gradient,
and its caller."""
_RUNNERS = ("verifier", "measure", "exporting/onnx_graph")
_OWN = tuple(f"{_PACKAGE / each}/" for each in _RUNNERS)
"""Folders of what runs a model, and of what watches it."""


@functools.cache
def is_user(file: str) -> bool:
    """Return whether a file may hold a model."""
    if file.startswith(("<", *_OWN)):
        return False
    if file.endswith(MODELS):
        return True
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in file:
            return file.rpartition(marker)[2].split("/")[0].removesuffix(".py") not in FRAMEWORKS
    return not file.startswith(_STDLIB)


def innermost(frames: Iterable[tuple[str, int, str]]) -> Source | None:
    """Return the innermost frame of the user's code, with its callers; None if there is none.

    Frames are (file, line, function), the innermost first. Those outside of the code that runs the
    program are left out: they only asked for the run.
    """
    own: list[tuple[str, int, str]] = []
    inside = False
    for frame in frames:
        if frame[0] in _WATCHES:
            continue
        ours = frame[0].startswith(_RUNS)
        if (inside and ours) or frame[0] in _ASKS:
            break
        inside = inside or not ours
        if is_user(frame[0]) and frame not in own[-1:]:
            own.append(frame)
            if len(own) > CALLERS:
                break
    source: Source | None = None
    for frame in reversed(own):
        source = Source(*frame, source)
    return source


def outside_of_frameworks(source: Source) -> Source | None:
    """Return the line that called a framework's model, or what a line built; None for other lines."""
    line: Source | None = source
    while line is not None and (line.function == BUILT or line.file.endswith(MODELS)):
        line = line.caller
    return None if line is source else line


def raised_at(error: BaseException) -> Source | None:
    """Return the innermost line of the user's code that an exception came through; None if this
    package raised it by itself."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _WATCHES]
    theirs = [frame for frame in frames if is_user(frame.filename)]
    entered = [i for i, frame in enumerate(frames) if is_user(frame.filename)]
    ours = [i for i, frame in enumerate(frames) if frame.filename.startswith(_OWN)]
    called = not ours or frames[ours[-1]].name in _CALLS or (entered and entered[-1] > ours[-1])
    if not theirs or not called:
        return None
    last = theirs[-1]
    return Source(last.filename, last.lineno or 0, last.name)


def calls_a_program(error: BaseException) -> bool:
    """Return whether an exception comes from the user's program rather than from this package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _WATCHES]
    ours = [f for f in frames if f.filename.startswith(_OWN)]
    return bool(ours) and ours[-1].name in ("call", "around", "<lambda>")


_CALLS = frozenset(["record", "call", "record_torch", "record_jax", "<lambda>", "__torch_dispatch__"])
"""Functions of this package that call the program."""
