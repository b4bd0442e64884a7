"""Reads the text tower beside an image tower that was read already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from parity.porting.dialects.table import Bound, bind_theirs
from parity.porting.dialects.transfer import letters, read
from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import TEXT, Checkpoint, of_one_type
from parity.porting.reading.origins import CONFIG_FILES, HEADER, MODULES
from parity.porting.recognition.known import GIVEN, OVERRIDDEN, SHAPES, word
from parity.porting.recognition.matching import fits_any, some
from parity.porting.text.dialect import TextDialect
from parity.porting.text.dialects import DIALECTS, OWN_TEXT
from vit_config import ConfigError, InputError, TextConfig, WeightsError
from vit_config.errors import UnstatedError
from vit_config.parameters import text_parameters

HOLDERS = {
    "num_heads": "N", "norm_eps": "EPS", "act": "ACT", "causal": "true|false", "pool": "POOL",
    "eos_id": "ID",
}  # fmt: skip
"""Fields that no shape shows, in the order in which they are asked for."""


@dataclass(frozen=True)
class TextCheckpoint:
    """A text tower in a file: its schema, and its tensors, which are not read yet."""

    dialect: TextDialect
    config: TextConfig
    origins: dict[str, str]
    """Source of each field, in words."""
    tensors: dict[str, Stored]
    """The tower's tensors in the file, by the dialect's names."""
    arrays: dict[str, Stored]
    """Its parameters by the twins' names, in PyTorch's layout; all of one type, the widest."""


def has_text(checkpoint: Checkpoint) -> TextDialect | None:
    """Return the dialect of the text tower beside an image tower; None if there is none known."""
    for each in DIALECTS:
        if checkpoint.dialect.name in each.beside and each.mark in _place(checkpoint, each):
            return each
    return None


def beside_texts(checkpoint: Checkpoint) -> bool:
    """Return whether an image tower was trained beside a text tower, which its file may not hold."""
    trained = [each for each in DIALECTS if checkpoint.dialect.name in each.beside]
    return bool(trained) and (trained != [OWN_TEXT] or has_text(checkpoint) is not None)


def _place(checkpoint: Checkpoint, dialect: TextDialect) -> Mapping[str, Stored]:
    return dialect.place(*checkpoint.place[:2], checkpoint.container.tensors)


def read_text(checkpoint: Checkpoint, *, fill: Mapping[str, Any] | None = None) -> TextCheckpoint:
    """Read the text tower beside an image tower; its tensors are read when they are used.

    Args:
        fill: fields to take where no other source states them.

    Raises:
        InputError: there is no text tower of a known dialect.
        WeightsError: a tensor is unknown or missing, or two sources contradict each other.
        ConfigError: fields that the files leave open have to be stated, or a value is not valid.
    """
    dialect = has_text(checkpoint)
    if dialect is None:
        raise InputError(
            f"{checkpoint.path}: no text tower of a known dialect beside the image tower"
            f" ({checkpoint.dialect.title})"
        )
    bound, tensors = _bound(dialect, _place(checkpoint, dialect))
    arrays, _ = of_one_type(read(bound, tensors), tensors)
    shapes = {name: stored.shape for name, stored in arrays.items()}
    shown = {**_of_shapes(shapes), **_heads(letters(bound, tensors))}
    known, origins = _known(dialect, shown, checkpoint)
    known = {**(fill or {}), **known}
    _ask(known)
    config = TextConfig(**known)
    _compare(config, shapes)
    width = checkpoint.config.num_logits
    if (embedded := config.projection_dim or config.hidden_size) != width:
        raise WeightsError(f"texts are embedded in {embedded} numbers, images in {width}")
    return TextCheckpoint(dialect, config, origins, tensors, arrays)


def _bound(dialect: TextDialect, place: Mapping[str, Stored]) -> tuple[list[Bound], dict[str, Stored]]:
    """Match the tower's tensors with the table that leaves the fewest over."""
    own = {
        n: t for n, t in place.items() if fits_any(n, dialect.tower) and not fits_any(n, dialect.buffers)
    }
    shapes = {name: stored.shape for name, stored in own.items()}
    bound, left = min(
        (bind_theirs(table, shapes) for table in dialect.tables), key=lambda result: len(result[1])
    )
    if left:
        raise WeightsError(f"{len(left)} tensors are unknown to {dialect.name}: {some(left)}")
    return bound, own


def _of_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the fields that follow from the parameters' shapes."""
    numbers = {int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")}
    needed = ("token_embed", "pos_embed", "blocks.0.mlp.fc1.weight")
    if missing := [name for name in needed if len(shapes.get(name, ())) != 2]:
        raise WeightsError(f"the text tower has no matrix for {', '.join(missing)}")
    head = shapes.get("head.weight")
    return {
        "vocab_size": shapes["token_embed"][0],
        "context_length": shapes["pos_embed"][0],
        "hidden_size": shapes["token_embed"][1],
        "depth": 1 + max(numbers),
        "mlp_dim": shapes["blocks.0.mlp.fc1.weight"][0],
        "projection_dim": head[0] if head else None,
        "projection_bias": "head.bias" in shapes,
        "logit_scale": "logit_scale" in shapes,
        "logit_bias": "logit_bias" in shapes,
    }


def _heads(sizes: Mapping[str, int]) -> dict[str, int]:
    return {"num_heads": sizes["h"]} if "h" in sizes else {}


def _known(
    dialect: TextDialect, shown: Mapping[str, Any], checkpoint: Checkpoint
) -> tuple[dict[str, Any], dict[str, str]]:
    """Take what every source states; refuse two that contradict each other."""
    files = dialect.stated(checkpoint.container.sidecars)
    header, live = checkpoint.opened.header.text, checkpoint.opened.live
    known: dict[str, Any] = {}
    origins: dict[str, str] = {}
    sources = (
        (SHAPES, shown),
        (OVERRIDDEN, checkpoint.text_override),
        (GIVEN, checkpoint.text_given),
        (HEADER, {} if header is None else {n: getattr(header, n) for n in header.fields()}),
        (MODULES, {} if live is None else dialect.modules(live.model)),
        (CONFIG_FILES, files),
    )
    for where, stated in sources:
        for name, value in stated.items():
            if name not in TextConfig.fields():
                TextConfig(**{name: value})  # its error suggests the field
            if name not in known:
                known[name], origins[name] = value, where
            elif known[name] != value and origins[name] != OVERRIDDEN:
                text = f"{word(known[name])} ({origins[name]}), but {word(value)} ({where})"
                kind = ConfigError if GIVEN in (where, origins[name]) else WeightsError
                raise kind(f"{TEXT}{name} = {text}")
    if known.get("pool", "eos") != "eos":
        known.setdefault("eos_id", None)
    for name, fixed in dialect.follows(known).items():
        if name not in known:
            known[name], origins[name] = fixed.value, f"code of {dialect.title}"
    return known, origins


def _ask(known: Mapping[str, Any]) -> None:
    """Ask the user for all fields that no source states. UnstatedError: there are any."""
    open_ = [name for name in HOLDERS if name not in known]
    if known.get("pool") is None:
        open_ = [name for name in open_ if name != "eos_id"]
    if open_:
        flags = " ".join(f"{TEXT}{name}={HOLDERS[name]}" for name in open_)
        texts = [f"cannot infer {', '.join(TEXT + name for name in open_)}; give --set {flags}"]
        raise UnstatedError("; ".join([*texts, *_choices(open_)]), tuple(TEXT + n for n in open_))


def _choices(names: list[str]) -> Iterator[str]:
    for name in names:
        words = get_args(TextConfig.model_fields[name].annotation)
        if words and all(isinstance(each, str) for each in words):
            yield f"{TEXT}{name}: {', '.join(words)}"


def _compare(cfg: TextConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors that are not exactly those of the schema."""
    expected = {name: each.shape for name, each in text_parameters(cfg).items()}
    wrong = [f"{name}: missing" for name in expected if name not in shapes]
    wrong += [f"{name}: unexpected" for name in shapes if name not in expected]
    wrong += [
        f"{name}: shape {shapes[name]} in the file, {shape} by the schema"
        for name, shape in expected.items()
        if name in shapes and tuple(shapes[name]) != shape
    ]
    if wrong:
        raise WeightsError(f"the text tower does not fit its schema: {some(wrong)}")
