"""The plan of a conversion: a dialect that can express the model, and the tensors by its names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from parity.porting.dialects import dialects, find_dialects
from parity.porting.dialects.buffers import make_buffers
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.rewrites import CannotHoldError, ModelState, express
from parity.porting.dialects.transfer import write
from parity.porting.dialects.transform import as_type, resize_model, with_classes
from parity.porting.formats.base import Stored
from parity.porting.formats.metadata import Metadata
from parity.porting.reading.anomalies import refuse_not_finite
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.heads import levels
from parity.porting.recognition.known import GIVEN
from parity.porting.recognition.matching import bind, fits_any, some
from parity.porting.text.write import TextTarget, plan_text
from parity.porting.writing.channels import with_channels
from vit_config import ConfigError, ViTConfig
from vit_config.errors import UnstatedError
from vit_config.files.weights_file import DIALECT

NONFINITE = "values that are not finite may pass, as asked"


@dataclass(frozen=True)
class Target:
    """The model that a conversion will write; no tensor is read or written yet."""

    source: Checkpoint
    dialect: Dialect
    state: ModelState
    metadata: Metadata
    tensors: dict[str, Stored]
    """The tensors by the target dialect's names."""

    unchanged: bool
    """Whether type, image size, channels and number of classes are the source's."""
    prefix: str = ""
    """Text before every name in the file."""
    wrapper: str = ""
    """Key of the dictionary in a file of PyTorch that holds the tensors."""
    text: TextTarget | None = None
    """The text tower, if it is written too; the tensors are then those of both."""

    def branch(self, kind: str) -> str:
        """Return the model's place in a file of some kind, where it is not that of its dialect."""
        wrapper = self.wrapper if kind == "torch" else ""
        own = not self.prefix and wrapper in ("", self.dialect.wrapper)
        return "" if own else ".".join(filter(None, (wrapper, self.prefix.rstrip("./"))))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(stored.nbytes for stored in self.tensors.values())


def plan(
    source: Checkpoint,
    to: str,
    *,
    dtype: str | None = None,
    image_size: tuple[int, int] | int | None = None,
    num_classes: int | None = None,
    channels: int | None = None,
    by: str | None = None,
    allow_nonfinite: bool = False,
    inside: bool = False,
    prefix: str = "",
    wrapper: str | None = None,
    text: bool = False,
) -> Target:
    """Rewrite a checkpoint for a dialect, or for the best dialect of a family.

    Args:
        channels, by: see `parity.porting.writing.channels.with_channels`.
        allow_nonfinite: allow NaN and infinite values; else reading a tensor that has some raises a
            WeightsError.
        inside: the tensors go into a larger model, so dialects that can only be read are allowed.
        prefix: text to put before every name; ends with a dot or a slash.
        wrapper: key of the dictionary that holds the tensors, in place of the dialect's own.
        text: also write the text tower beside the model.

    Raises:
        ConfigError: the dialect cannot hold the model, or a change cannot be made.
        UnstatedError: a trained classifier would be dropped, and the user did not allow it.
    """
    if source.unheld and num_classes is None and source.origins["num_classes"] != GIVEN:
        raise UnstatedError(f"{source.path}: {_dropped(source.unheld)}")
    metadata, notes = source.metadata, (NONFINITE,) if allow_nonfinite else ()
    arrays = source.arrays if allow_nonfinite else refuse_not_finite(source.arrays, source.path)
    state = ModelState(source.config, arrays, notes)
    if image_size is not None:
        state = resize_model(state, image_size)
        metadata = metadata.replace(pixels=metadata.pixels and metadata.pixels.replace(image_size=None))
    if num_classes is not None:
        state = with_classes(state, num_classes)
        same = num_classes == source.config.num_classes
        metadata = metadata if same else metadata.replace(class_names=None)
    state, metadata = with_channels(state, metadata, channels, by)
    if dtype is not None:
        state = as_type(state, dtype)
    dialect, state = _expressed(state, to, source.dialect, inside)
    tensors = write(bind(dialect, state.config, state.arrays), state.arrays, state.config)
    dtype_of_all = next(iter(state.arrays.values())).dtype
    buffers, taken = _buffers(dialect, state.config, dtype_of_all, source)
    if not allow_nonfinite:
        refuse_not_finite({name: buffers[name] for name in taken}, source.path)
    source = replace(source, beside=source.beside | {*taken.values()})
    made = [each for each in buffers if each not in taken and fits_any(each, dialect.ignored)]
    for kind, value in (("zeros", 0.0), ("ones", 1.0)):
        if names := [each for each in made if (buffers[each].load() == value).all()]:
            said = f"{', '.join(names)}: {kind}, as the source has none; the encoder does not use it"
            state = replace(state, said=(*state.said, said))
    tensors = dialect.with_body(tensors | buffers)
    unchanged = {dtype, image_size, num_classes, channels} == {None}
    if not text:
        place = _place(dialect, prefix, wrapper)
        named = {f"{prefix}{name}": stored for name, stored in tensors.items()}
        return Target(source, dialect, state, metadata, named, unchanged, *place)
    beside = plan_text(
        source, state.config, tensors, dialect, dtype_of_all, allow_nonfinite=allow_nonfinite
    )
    state = replace(
        state, said=(*state.said, f"the text tower beside it written as {beside.dialect.name}")
    )
    if prefix or wrapper:
        raise ConfigError("--prefix, --wrapper: are of one tower; leave --text out")
    place = _place(dialect, prefix, wrapper)
    source = replace(source, beside=source.beside | beside.read)
    return Target(source, dialect, state, metadata, beside.tensors, unchanged, *place, beside)


def _buffers(
    dialect: Dialect, cfg: ViTConfig, dtype: np.dtype, source: Checkpoint
) -> tuple[dict[str, Stored], dict[str, str]]:
    """Return what a target has besides its parameters, with the source's values where no schema
    determines them: a mask token, from which training goes on, a norm that a classifier passes by.

    Returns:
        The tensors; and the target's name -> the source's of those that the source has.
    """
    buffers, taken = make_buffers(dialect, cfg, dtype), dict[str, str]()
    for name, buffer in buffers.items():
        for theirs in source.ignored if fits_any(name, dialect.ignored) else ():
            stored = source.place.tensors[theirs]
            if _of_one_place(theirs, name) and math.prod(stored.shape) == math.prod(buffer.shape):
                taken[name] = theirs
                buffers[name] = Stored.of(stored.load().reshape(buffer.shape).astype(dtype))
    return buffers, taken


def _of_one_place(theirs: str, name: str) -> bool:
    """Return whether two tensors that no schema has are the same by their names: a token by its own, a
    weight by that of its layer too; a decoder's is another."""
    one, other = levels(theirs), levels(name)
    last = 1 if other[-1].endswith("token") else 2
    return one[-last:] == other[-last:] and "decoder" not in one


@contextmanager
def asked_at_once(num_classes: int | None) -> Iterator[None]:
    """Add a classifier that would be dropped to a question about the schema of the same file."""
    try:
        yield
    except UnstatedError as error:
        if not error.unheld or num_classes is not None:
            raise
        raise UnstatedError(f"{error}; {_dropped(error.unheld)}", error.fields) from None


def _dropped(names: Sequence[str]) -> str:
    return f"its classifier, {some(names)}, is none that a schema has; --num-classes 0 takes it off"


def _place(dialect: Dialect, prefix: str, wrapper: str | None) -> tuple[str, str]:
    """Return the prefix and the wrapper. ConfigError: a file of this dialect cannot have them."""
    if prefix and not prefix.endswith((".", "/")):
        raise ConfigError(f"--prefix {prefix}: expected a dot or a slash at its end, as in {prefix}.")
    if (prefix or wrapper) and dialect.name == DIALECT:
        raise ConfigError(
            "--prefix, --wrapper: this project's own file has neither; give --to another dialect"
        )
    return prefix, dialect.wrapper if wrapper is None else wrapper


def _expressed(state: ModelState, to: str, own: Dialect, inside: bool) -> tuple[Dialect, ModelState]:
    """Return the dialect that can express the model with the fewest rewrites, and the rewritten model.

    Of several, the source's own dialect is preferred, else the first.
    """
    found = find_dialects(to)
    options, refused = _holding(state, found, inside)
    if not options:  # of a dialect that has the name of its family, another one of it may hold the model
        family = [each for each in dialects() if each.family == to and each not in found]
        options, _ = _holding(state, family, inside)
    if not options:
        raise ConfigError(_refusal(to, refused))
    return min(options, key=lambda each: (len(each[1].said), each[0] != own))


def _holding(
    state: ModelState, every: Sequence[Dialect], inside: bool
) -> tuple[list[tuple[Dialect, ModelState]], list[CannotHoldError]]:
    """Return the dialects that can hold a model, each with what it then is, and why others cannot."""
    options: list[tuple[Dialect, ModelState]] = []
    refused: list[CannotHoldError] = []
    for dialect in every:
        if not dialect.writes and not inside:
            continue
        try:
            options.append((dialect, express(state, dialect)))
        except CannotHoldError as error:
            refused.append(error)
    return options, refused


def _refusal(to: str, refused: Sequence[CannotHoldError]) -> str:
    """Say why no dialect of a family can hold a model: what is in the way of all, and of the nearest."""
    if not refused:
        return f"{to} is only read"
    if len(refused) == 1:
        return str(refused[0])
    least = min(len(each.reasons) for each in refused)
    nearest = [each for each in refused if len(each.reasons) == least]
    common = [name for name in refused[0].reasons if name and all(name in e.reasons for e in refused)]
    every = f" ({', '.join(common)} in the way of each)" if common else ""
    shown = "; or ".join(
        f"{each.name}, but for {'; '.join(each.reasons.values())}" for each in nearest[:3]
    )
    more = f"; and {len(nearest) - 3} others as near" if len(nearest) > 3 else ""
    return (
        f"none of the {len(refused)} dialects of {to} can hold this model{every}; nearest is"
        f" {shown}{more}"
    )
