"""Matches a model's tensors with the rows of a dialect's table, and checks the tensors left over."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.table import REST, Bound, Table, bind_ours, bind_theirs
from parity.porting.formats.base import Stored
from vit_config import ConfigError, ViTConfig, WeightsError
from vit_config.errors import OtherModelError

if TYPE_CHECKING:
    from parity.porting.recognition.recognise import Model


class MatchedRows(NamedTuple):
    """A file's tensors, matched with the rows of a table."""

    bound: list[Bound]
    """The matched rows."""
    tensors: dict[str, Stored]
    """The model's tensors by the dialect's names, buffers included."""
    ignored: tuple[str, ...] = ()
    """Names of the tensors left out."""


def bind(dialect: Dialect, cfg: ViTConfig, names: Iterable[str]) -> list[Bound]:
    """Match a model's parameters with the rows of the table that has a place for all of them.

    Raises:
        ConfigError: no table has.
    """
    names = list(names)
    tried = [bind_ours(table, cfg, names) for table in dialect.tables]
    bound, left = min(tried, key=lambda result: len(result[1]))
    if left:
        raise ConfigError(f"{dialect.name} has no place for {', '.join(left[:6])}")
    return bound


def unknown(dialect: Dialect, tensors: Mapping[str, Stored]) -> list[str]:
    """Return the names that no row of a dialect's table takes, without those that it leaves out."""
    return [name for name in _bind(dialect, tensors)[1] if not _is_ignored(name, dialect)]


def match(model: Model) -> MatchedRows:
    """Match every tensor of a model with a row of its dialect's table.

    Raises:
        WeightsError: a tensor is unknown to this dialect, or only another kind of model has it.
    """
    bound, left = _bind(model.dialect, model.tensors)
    for name in left:
        for pattern, what in model.dialect.foreign.items():
            if fnmatch.fnmatchcase(name, pattern):
                raise OtherModelError(f"{name} is of {what}; that is not converted")
    ignored = [name for name in left if _is_ignored(name, model.dialect)]
    if others := [name for name in left if name not in ignored]:
        raise WeightsError(f"{len(others)} tensors are unknown to {model.dialect.name}: {some(others)}")
    tensors = {name: stored for name, stored in model.tensors.items() if name not in ignored}
    return MatchedRows(bound, tensors, tuple(ignored))


def _bind(dialect: Dialect, tensors: Mapping[str, Stored]) -> tuple[list[Bound], list[str]]:
    """Match tensors with the table that leaves the fewest over; return rows and names left over."""
    shapes = {name: stored.shape for name, stored in tensors.items()}

    def try_table(table: Table) -> tuple[list[Bound], list[str]]:
        bound, left = bind_theirs(table, shapes)
        return bound, left

    bound, left = min(map(try_table, dialect.tables), key=lambda result: len(result[1]))
    # a table's last row may take every tensor, also those to ignore or refuse
    ignored = (*dialect.ignored, *dialect.foreign)
    out = [one for one in bound if one.row.ours == REST.ours and fits_any(one.theirs[0], ignored)]
    return [one for one in bound if one not in out], [*left, *(one.theirs[0] for one in out)]


def _is_ignored(name: str, dialect: Dialect) -> bool:
    buffers = [re.sub(r"\{[ij]\}", "*", buffer) for buffer in dialect.buffers]
    return fits_any(name, (*dialect.ignored, *buffers))


def fits_any(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name fits one of some patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def some(names: Sequence[str]) -> str:
    """Join the first six names to a text."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
