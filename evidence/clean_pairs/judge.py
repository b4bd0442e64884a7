"""One pair: shown to be right, or visibly wrong, without the product; then what the product says."""

from __future__ import annotations

import signal
import time
import traceback
import warnings
from dataclasses import dataclass
from types import FrameType
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from evidence.clean_pairs import mistakes
from evidence.clean_pairs.draw import Pair
from evidence.clean_pairs.outcome import CLOSE, NARROW, VISIBLE, Outcome, distance, loaded, outcome
from evidence.clean_pairs.sizes import Size
from evidence.clean_pairs.style import RIGHT, Style, Wrong
from evidence.clean_pairs.weights import Weights
from parity.verifier.compare import compare
from parity.verifier.report.compared import Compared


@dataclass
class Result:
    """What came of one pair."""

    pair: Pair
    verdict: str = ""
    """The product's; `WRONG PAIR` where the pair itself is not what it should be, `ERROR`, `NO END`."""
    said: str = ""
    """Causes and lines of the places, or the error."""
    left_out: tuple[str, ...] = ()
    """Gradients and outputs that were not compared."""
    no_backward: str = ""
    apart: float = 0.0
    """Distance of the two outcomes, by themselves."""
    where: str = ""
    placed: bool = False
    named: bool = False
    cause: str = ""
    seconds: float = 0.0
    report: str = ""
    """The product's whole text."""

    @property
    def state(self) -> str:
        """The verdict, with what an EQUAL does not cover."""
        if self.verdict == "EQUAL" and self.no_backward:
            return "EQUAL, no gradients"
        return "EQUAL, some left out" if self.verdict == "EQUAL" and self.left_out else self.verdict

    @property
    def why(self) -> str:
        """What stands behind the verdict, in one line."""
        some = ", ".join(self.left_out[:3]) + (", .." if len(self.left_out) > 3 else "")
        left = f"not compared: {len(self.left_out)} ({some})" if self.left_out else ""
        return "; ".join(filter(None, [self.said, self.no_backward, left]))


def rounded(w: Weights) -> Weights:
    """Weights in float32 that bfloat16 can hold."""
    return {name: np.asarray(jnp.asarray(each, jnp.bfloat16), np.float32) for name, each in w.items()}


def given(style: Style, size: Size, w: Weights, dtype: str, wrong: Wrong = RIGHT) -> tuple[Any, ...]:
    """The side that the product is given."""
    if style.torch:
        return _of_torch(style, size, w, getattr(torch, dtype), wrong)
    small = dtype == "bfloat16"
    kind = jnp.bfloat16 if small and not style.typed else jnp.float32
    held = {name: jnp.asarray(each, kind) for name, each in w.items()}
    side = style.side(held, size, wrong, "bfloat16" if small else None)
    x = jnp.asarray(size.images(style.channels_last), kind)
    if hasattr(side.program, "apply"):
        return side.program, side.given, x
    return (side.program, x) if side.given is None else (side.program, (side.given, x))


def _of_torch(style: Style, size: Size, w: Weights, dtype: torch.dtype, wrong: Wrong) -> tuple[Any, ...]:
    side = style.side({name: torch.from_numpy(each) for name, each in w.items()}, size, wrong)
    x = torch.from_numpy(size.images()).to(dtype)
    if not isinstance(side.program, torch.nn.Module):
        return side.program, ({name: each.to(dtype) for name, each in side.given.items()}, x)
    module, _ = loaded(side, dtype)
    if side.finish:
        module = side.finish(module, x)
    return (module, {side.spread: x}) if side.spread else (module, x)


_OUTCOMES: dict[Any, Outcome] = {}


def _outcome(style: Style, pair: Pair, w: Weights, wrong: Wrong = RIGHT) -> Outcome:
    key = style.name, pair.size, pair.kind, w is pair.weights, wrong
    if key not in _OUTCOMES:
        _OUTCOMES[key] = outcome(style, pair.size, w, wrong)
    return _OUTCOMES[key]


class NoEndError(BaseException):
    """A pair took more than its limit; no `except Exception` of the product may take it for its own."""


def judged(pair: Pair, limit: float = 0) -> Result:
    """Check one pair, compare it, and enter what came of it; `limit` is in CPU seconds, 0 for none."""
    started, result = time.process_time(), Result(pair)

    def stop(signum: int, frame: FrameType | None) -> None:
        raise NoEndError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        with warnings.catch_warnings(action="ignore"):
            _judge(pair, result)
    except NoEndError:
        result.verdict, result.said = "NO END", f"none in {limit:.0f} CPU seconds"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = str(error).partition("\n")[0][:200]
        result.verdict = "ERROR"
        result.said = (
            f"{type(error).__name__}: {line} ({last.filename.rpartition('/')[2]}:{last.lineno})"
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    result.seconds = time.process_time() - started
    return result


def _judge(pair: Pair, result: Result) -> None:
    a, b = pair.sides
    types = ("float32", "bfloat16") if " and " in pair.dtype else (pair.dtype, pair.dtype)
    # weights that both hold in float32 stay as they are, whatever type B computes in
    whole = pair.dtype == "float32" or (types[0] == "float32" and b.typed)
    small = pair.weights if whole else rounded(pair.weights)
    right = _outcome(a, pair, small)
    result.apart, result.where = distance(right, _outcome(b, pair, small, pair.wrong))
    seen = result.apart
    if pair.wrong.name and (a.narrow or b.narrow):  # it is seen beside B without it, as narrow as B is
        seen = distance(_outcome(b, pair, small), _outcome(b, pair, small, pair.wrong))[0]
    if pair.wrong.name and seen < VISIBLE:
        result.verdict = "NOT VISIBLE"
        return
    if not pair.wrong.name and not result.apart <= (NARROW if a.narrow or b.narrow else CLOSE):
        result.verdict, result.said = "WRONG PAIR", f"{result.apart:.1e} apart in {result.where}"
        return
    of_a = pair.weights if types[0] == "float32" else small
    sides = given(a, pair.size, of_a, types[0]), given(b, pair.size, small, types[1], pair.wrong)
    enter(compare(*sides, names=("A", "B")), result)


def enter(found: Compared, result: Result) -> None:
    """What the product found."""
    result.verdict, result.no_backward = found.verdict, found.no_backward
    result.report = found.to_text()
    lefts = [name for part in found.parts for name in part.counts.outputs_left_out]
    result.left_out = tuple(each for each in lefts if each.startswith("A"))
    places = found.places
    result.said = "; ".join(
        f"{p.cause or p.kind} at {p.b.where or p.a.where}: {p.message}" for p in places
    )
    name = result.pair.wrong.name
    if not name:
        return
    result.cause = next((each.cause for each in places if each.cause), "")
    result.named = result.cause in mistakes.FAULTS[name].causes or (
        # of parameters the sentence tells what they hold, without a name before it
        not result.cause
        and name in mistakes.TOLD
        and all(p.kind == "parameter" and mistakes.TOLD[name].search(p.message) for p in places)
    )
    lines = [line for each in places for line in each.b.lines]
    result.placed = any(mistakes.is_place(line.file, line.line, name) for line in lines) or (
        name in mistakes.WEIGHTS and any(each.kind == "parameter" or each.cause for each in places)
    )
