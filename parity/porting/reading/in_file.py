"""Finds the model in an opened file, and matches its tensors with parameters of the schema."""

from __future__ import annotations

from parity.porting.dialects import dialects, find_dialects
from parity.porting.opening.opened import Opened
from parity.porting.recognition.matching import MatchedRows, match
from parity.porting.recognition.recognise import Model, find
from vit_config import WeightsError
from vit_config.errors import OtherModelError


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
