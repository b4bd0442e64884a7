"""Finds the model in an opened file, matches its tensors with parameters, or says why it is not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects import dialects, find_dialects
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.rewrites import canonical
from parity.porting.dialects.rewrites.rewrite import allows
from parity.porting.formats.base import Stored
from parity.porting.opening.opened import Opened
from parity.porting.recognition.known import GIVEN, OVERRIDDEN
from parity.porting.recognition.matching import MatchedRows, match
from parity.porting.recognition.recognise import Model, find
from parity.porting.recognition.resolve import Resolved
from vit_config import WeightsError
from vit_config.errors import OtherModelError
from vit_config.files.matching import match_arrays
from vit_config.files.weights_file import DIALECT
from vit_config.parameters import parameters


def find_model(opened: Opened, name: str | None, part: str | None) -> Model:
    """Find the model in the file: by the user's dialect, else the header's, else by names and shapes."""
    if opened.header.dialect is not None and name is None:
        (dialect,) = find_dialects(opened.header.dialect)
        if part is not None and part not in (dialect.wrapper, dialect.body.rstrip("./")):
            raise WeightsError(
                f"--part {part}: by its header it holds one model ({dialect.name}), and no part of that"
                " name; leave --part out"
            )
        prefix, branch = f"{dialect.wrapper}.", opened.header.branch
        inside = (f"{branch}.", f"{branch}/") if branch else ("",)
        tensors = {n: each for n, each in opened.container.tensors.items() if n.startswith(inside)}
        skip = len(inside[0])
        names = {n[skip:].removeprefix(prefix): each for n, each in tensors.items()}
        outside = len(opened.container.tensors) - len(names)
        return Model(dialect, branch, dialect.within_body(names), "its header", outside=outside)
    model = find(opened, find_dialects(name) if name else dialects(), part=part, asked=name is not None)
    return model._replace(why=f"{model.why}, as asked", asked=True) if name else model


def match_model(opened: Opened, model: Model) -> MatchedRows:
    """Match a model's tensors with parameters of the schema.

    Raises:
        WeightsError: the dialect does not know a tensor; or config.json states another model of the same
            function, and the user did not name the dialect.
        OtherModelError: it states a model of another function, or of one that is not known; or the
            dialect does not know a tensor, and config.json says that the weights are quantised.
    """
    other = "" if model.asked else opened.sidecars.contradiction(model.dialect)
    try:
        matched = match(model)
    except WeightsError as error:
        if method := opened.sidecars.quantiser:
            raise OtherModelError(
                f"config.json says that it is quantised by {method}; save what model.dequantize()"
                f" returns, or take the weights it was made of ({error})"
            ) from None
        raise WeightsError(f"{other}, and {error}" if other else str(error)) from None
    if other and not opened.sidecars.is_relative(model.dialect):
        raise OtherModelError(f"{other}, and what its code computes of them is not known here")
    if other:
        raise WeightsError(f"{other}; give --dialect {model.dialect.name} if that is what it is")
    return matched


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
