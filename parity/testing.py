"""`assert_parity`: an assertion for test suites that two models compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from parity.measure.precision import Precision
from parity.measure.traces import Stage
from parity.verifier.diff import Difference, How, InProcess, compare_sides, subject_of
from parity.verifier.lock import check_lock
from vit_config import ConfigError

Level = Literal["logits", "activations", "gradients"]
LEVELS: dict[Level, tuple[Stage, ...]] = {
    "logits": ("batch",),
    "activations": ("batch", "parameters", "forward"),
    "gradients": ("batch", "parameters", "forward", "loss", "backward", "gradients"),
}
"""The stages that each level compares; ``logits`` compares the model's output alone."""


def assert_parity(
    a: Any,
    b: Any,
    *,
    level: Level = "logits",
    dtype: str | None = "float64",
    precision: Precision = "highest",
    how: How | Path = "auto",
    lock: str | Path | None = None,
) -> Difference:
    """Assert that two models compute the same, up to round-off.

    Args:
        a: the reference: ``(model, inputs)``, or ``(module, variables, inputs)`` of Linen; inputs are
            one array, a tuple or a dictionary, in the layout that the model takes.
        b: the other model, of either framework, in the same form.
        level: ``logits``; ``activations`` of every module; ``gradients`` too, of activations and
            parameters.
        dtype: the type that parameters and inputs are cast to; None leaves them as they are.
        precision: precision of float32 products, see `parity.measure.precision`.
        how: how modules are matched, see `parity.verifier.diff.align`.
        lock: a file that keeps the worst error of each level; errors that grow beyond it fail too, see
            `parity.verifier.lock`.

    Returns:
        Every comparison that was made.

    Raises:
        AssertionError: the models differ, and the message names the first difference and its line in B;
            float32 products ran at reduced precision; or an error exceeds the lock.
        ConfigError, InputError: the models cannot be compared.
    """
    if level not in LEVELS:
        raise ConfigError(f"level = {level!r}: must be one of {', '.join(get_args(Level))}")
    sides = [
        InProcess(subject_of(name, model), dtype=dtype, precision=precision)
        for name, model in (("a", a), ("b", b))
    ]
    difference = compare_sides(*sides, how=how)
    for flag in difference.uncertified:
        raise AssertionError(
            f"float32 products ran at reduced precision, so equality says nothing: {flag}"
        )
    worst = worst_errors(difference, level)
    first = difference.first_of(LEVELS[level]) or difference.first_output
    if first is not None:
        judged = first.judged
        raise AssertionError(
            f"first difference ({first.stage}): {first}; error {judged.error:.1e},"
            f" where rounding explains {judged.limit:.1e}{_on_line(difference)}"
        )
    if lock is not None:
        check_lock(Path(lock), worst)
    return difference


def _on_line(difference: Difference) -> str:
    """Return the source line where B first differs from A, in words; empty where it is unknown."""
    found = difference.lines
    line = next((each for place in found.places for each in place.b.lines[:1]), None) if found else None
    return "" if line is None else f"; {line}: {line.text}"


def worst_errors(difference: Difference, level: Level) -> dict[str, float]:
    """Return the largest error of the logits and of each stage that a level compares."""
    found = {"logits": max((each.error for each in difference.outputs), default=0.0)}
    for each in difference.comparisons:
        if each.stage in LEVELS[level] and each.judged:
            largest = max(judged.error for judged in each.judged)
            found[each.stage] = max(found.get(each.stage, 0.0), largest)
    return found
