"""Notes on a checkpoint: prefixes stripped, tensors left out and values assumed in reading it."""

from __future__ import annotations

from collections.abc import Sequence

from parity.porting.dialects.dialect import Dialect
from parity.porting.opening.opened import Opened
from parity.porting.reading.origins import preset_of_tower
from parity.porting.recognition.heads import classifiers
from parity.porting.recognition.matching import MatchedRows, some
from parity.porting.recognition.recognise import Model
from parity.porting.recognition.resolve import SQUARE, SQUARE_PATCH, Resolved


def note_stripped(opened: Opened, model: Model) -> list[str]:
    """Return notes on changed names and on tensors outside the model."""
    notes = [opened.tower] if opened.tower else []
    relative = opened.sidecars.of_relative(model.dialect)[1] if model.asked else ""
    known = not relative or opened.sidecars.is_relative(model.dialect)
    odd = "" if known else f", a model whose code may compute otherwise than {model.dialect.title}"
    notes += [f"took the entries of config.json, whose model_type is {relative}{odd}"] * bool(relative)
    if name := preset_of_tower(opened, model):
        notes.append(
            f"took it for timm's {name}, as timm_model_ids of config.json says; its host uses the tokens"
            " after the last block but one, without the norm"
        )
    notes += model.respelled
    notes += [f"stripped {model.branch!r} from every name"] if model.branch else []
    return notes


def outside(count: int, branch: str) -> tuple[str, ...]:
    """Return a note on the number of tensors of the file that are outside of the model."""
    where = f"not under {branch!r}" if branch else "no part of it"
    return (f"left out {_tensors(count)} {where}",) if count else ()


def note_ignored(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on tensors that are left out although they are inside of the model."""
    return (f"left out {_tensors(len(names))} no part of the encoder: {some(names)}",) if names else ()


def _tensors(count: int) -> str:
    return "1 tensor that is" if count == 1 else f"{count} tensors that are"


def note_assumed(dialect: Dialect, resolved: Resolved) -> list[str]:
    """Return notes on patches or images assumed square where an oblong fits as well."""
    cfg = resolved.config
    (rows, columns), (height, width) = cfg.grid, cfg.patch_size
    notes = []
    if resolved.origins["patch_size"] == SQUARE_PATCH:
        notes.append(
            f"took patches of {cfg.patch_dim} values for squares of {height}x{width} in"
            f" {cfg.in_channels} channels; --set patch_size=HxW says otherwise"
        )
    side = next((side for side in range(2, rows + 1) if rows % side == 0), None)
    if resolved.origins["image_size"] == SQUARE and side is not None:
        oblong = cfg.replace(image_size=(rows // side * height, columns * side * width))
        if not dialect.problems(oblong):
            size = "x".join(map(str, cfg.image_size))
            notes.append(
                f"took the {rows * columns} positions for a square of {rows}x{columns}, so images are"
                f" {size}; --set image_size=HxW says otherwise"
            )
    return notes


def unheld(
    opened: Opened, model: Model, matched: MatchedRows, *, width: int, has_head: bool
) -> tuple[str, ...]:
    """Return the names of a trained classifier that is left out.

    A classifier within a model that has a head of its own does not count: it is not used.
    """
    inside = {} if has_head else {n: model.tensors[n].shape for n in matched.ignored}
    left = {f"{model.branch}.{name}" if model.branch else name: s for name, s in inside.items()}
    if model.branch:
        under = model.branch.replace("/", ".") + "."
        for name, stored in opened.container.tensors.items():
            if not name.replace("/", ".").startswith(under):
                left[name] = stored.shape
    return classifiers(left, model.branch, width)
