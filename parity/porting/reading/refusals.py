"""Refusals of checkpoints whose names and shapes match a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.rewrites import canonical
from parity.porting.dialects.rewrites.rewrite import allows
from parity.porting.formats.base import Stored
from parity.porting.opening.opened import Opened
from parity.porting.recognition.known import GIVEN, OVERRIDDEN
from parity.porting.recognition.resolve import Resolved
from vit_config import WeightsError
from vit_config.files.matching import match_arrays
from vit_config.files.weights_file import DIALECT
from vit_config.parameters import parameters


def refuse_other_tensors(
    opened: Opened, dialect: Dialect, arrays: Mapping[str, Stored], given: Mapping[str, Any]
) -> None:
    """Refuse a file of the project's own whose tensors are not those of its schema.

    The error names every wrong tensor; the check by shapes would name the first contradicted field only.
    """
    cfg = opened.header.schema if dialect.name == DIALECT and not given else None
    if cfg is not None:
        match_arrays({name: each.shape for name, each in parameters(cfg).items()}, arrays)


def refuse_foreign(dialect: Dialect, resolved: Resolved) -> None:
    """Refuse a schema that no model of the dialect has: some information was lost.

    Fields that the user gave or overrode are accepted.
    """
    cfg = canonical(resolved.config)
    by_field = dialect.problems(cfg)
    problems = [
        reason
        for name, reason in by_field.items()
        if resolved.origins.get(name) not in (GIVEN, OVERRIDDEN)
        and not (name in dialect.older and allows(dialect.older[name], getattr(cfg, name)))
    ]
    if problems and "" in by_field:  # whole sentences, of `limits`
        raise WeightsError(f"is no model of {dialect.title}: {'; '.join(problems)}")
    if problems:
        raise WeightsError(f"no model of {dialect.title} has {'; '.join(problems)}")
