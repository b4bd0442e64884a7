"""Assertions for test suites: two models compute the same; a model holds a file's numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from parity.measure.shown import write_json
from parity.verifier.compare import compare
from parity.verifier.loaded import Report, judge
from parity.verifier.report.compared import Compared
from vit_config import ConfigError
from vit_config.files.atomic import check_writable
from vit_config.files.foreign import parse_json, read_text

Level = Literal["logits", "gradients"]
"""``logits``: the outputs. ``gradients``: also the gradients by every parameter and input."""


def assert_parity(
    a: Any, b: Any, *, level: Level = "logits", lock: str | Path | None = None
) -> Compared:
    """Assert that two models compute the same in float64, up to round-off.

    Args:
        a: the reference: ``(model, inputs)``, or ``(module, variables, inputs)`` of Linen; inputs are
            one array, a tuple or a dictionary, in the layout that the model takes.
        b: the other model, of either framework, in the same form.
        level: ``logits`` or ``gradients``.
        lock: a file that keeps the worst error of each level; errors that grow beyond it fail too,
            unless the environment says ``PARITY_LOCK_UPDATE=1``.

    Returns:
        The comparison.

    Raises:
        AssertionError: the models differ, or not all was compared: the message is the report that
            `parity diff` prints, with the verdict first; gradients could not be compared; or an error
            exceeds the lock.
        ConfigError, InputError: the models cannot be compared.
    """
    if level not in get_args(Level):
        raise ConfigError(f"level = {level!r}: must be one of {', '.join(get_args(Level))}")
    compared = compare(a, b, names=("a", "b"), backward=level == "gradients")
    if not compared.equal:
        raise AssertionError(compared.to_text())
    if level == "gradients" and compared.no_backward:
        raise AssertionError(f"gradients were not compared: {compared.no_backward}")
    if lock is not None:
        check_lock(Path(lock), worst_errors(compared))
    return compared


def assert_loaded(
    model: Any, file: str | Path | Mapping[str, Any], *, apart_from: Sequence[str] = ()
) -> Report:
    """Assert that a checkpoint was really loaded: each parameter of a model, and each buffer that is
    saved with it, holds the file's numbers, and the right ones.

    Args:
        model: a module of PyTorch, NNX, Equinox or Keras, also wrapped by DDP, FSDP, torch.compile or
            PEFT; variables of Linen or parameters of Haiku; or a tuple that begins with one of these, as
            `assert_parity` takes it. A part, such as ``model.backbone``, can be asked for by itself.
        file: a checkpoint of any kind, or a state dict; it need be of no Vision Transformer.
        apart_from: patterns of names of parameters that are not to be the file's, such as ``head.*``
            where the head is new, and of tensors of the file that the model is not to have.

    Returns:
        What was found of each parameter.

    Raises:
        AssertionError: some are not the file's: the message says in its first line which, and what they
            hold instead.
        ConfigError, InputError, MissingFileError, WeightsError: the two cannot be compared.
    """
    patterns = (apart_from,) if isinstance(apart_from, str) else apart_from
    report = judge(model, file, apart_from=patterns)
    if not report.loaded:
        raise AssertionError(report.to_text())
    return report


def worst_errors(compared: Compared) -> dict[str, float]:
    """Return the largest error of each level that was compared."""
    errors = {"logits": compared.forward.error}
    return errors if compared.backward is None else errors | {"gradients": compared.backward.error}


ROOM = 4.0
"""How many times an error may exceed the saved one: another processor rounds otherwise."""
GRAIN = 2.0**-52
"""One epsilon of float64; smaller saved errors count as this."""
UPDATE = "PARITY_LOCK_UPDATE"
"""Environment variable that, set to 1, replaces the errors in the file even by worse ones."""


def check_lock(path: Path, worst: Mapping[str, float]) -> None:
    """Compare errors with those in a file; write the file if there is none, or where a level is new.

    Args:
        worst: the largest error of each level.

    Raises:
        AssertionError: an error is more than `ROOM` times the saved one; the message has both.
        ConfigError: the file is not a lock file, or is a folder.
        MissingFileError: there is no folder to write it in.
    """
    check_writable(path)
    saved = _read(path)
    if os.environ.get(UPDATE) == "1":
        saved = {level: error for level, error in saved.items() if level not in worst}
    grown = [
        f"{level} {error:.1e}, was {saved[level]:.1e}"
        for level, error in worst.items()
        if level in saved and not error <= ROOM * max(saved[level], GRAIN)
    ]
    if grown:
        raise AssertionError(
            f"{path}: errors have grown more than {ROOM:g} times: {'; '.join(grown)}; find out"
            f" why, or set {UPDATE}=1 to accept them"
        )
    new = {level: error for level, error in worst.items() if level not in saved and math.isfinite(error)}
    if new or not path.exists():
        content = dict(sorted((saved | new).items()))
        write_json(path, content)


def _read(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    try:
        content = parse_json(read_text(path))
        if not isinstance(content, dict):
            raise ValueError("no object")
        return {str(level): float(error) for level, error in content.items()}
    except (ValueError, TypeError):
        raise ConfigError(
            f"{path}: expected a JSON object of errors by level; delete it to begin anew"
        ) from None
