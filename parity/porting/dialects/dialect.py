"""Definition of a dialect: its table of names, the schemas it can express, what its code decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from parity.porting.dialects.table import Table
from parity.porting.formats.metadata import Metadata
from vit_config import Preprocess, ViTConfig

T = TypeVar("T")

ANY = object()
"""Stands for every value of a field."""

SIZES = (
    "image_size", "patch_size", "in_channels", "hidden_size", "depth", "num_heads", "mlp_dim",
    "num_classes",
)  # fmt: skip
"""Fields that every dialect can have at any value."""

NEUTRAL = (
    "pos_embed_resize", "dynamic_image_size", "patch_remainder", "init",
    "dropout_embed", "dropout_patch", "dropout_attention", "dropout_attention_out",
    "dropout_mlp_inner", "dropout_mlp_outer", "dropout_head", "stochastic_depth",
)  # fmt: skip
"""Fields that act in training only, or on images of another size."""

INITIAL = ("layer_scale",)
"""Fields that hold an initial value: a trained model's function does not depend on it, only on whether
it is None."""

FALLBACK_FIELDS = (
    "image_size", "patch_remainder", "num_classes", "pos_embed_prefix", "head_bias", "head_hidden",
)  # fmt: skip
"""Fields in which a fine-tuned model may differ from the preset that it started from."""

Buffer = Callable[[ViTConfig], np.ndarray | None]
"""Computes a buffer's value from the schema; None if the library's model has no such buffer."""


class Unsaid(NamedTuple):
    """A field's value that a file states and no schema can express, but that another may replace."""

    said: str
    """The file's entry."""
    why: str
    """Why another value may replace it."""
    instead: tuple[str, ...] = ()
    """The values that may, if they are not all that the field can have."""


class Fixed(NamedTuple):
    """A field's value that a library's code fixes for every model of a dialect."""

    value: Any
    by: str
    """Place in the library's code."""


def by_code(where: str, **values: Any) -> dict[str, Fixed]:
    """Return `Fixed` fields that one place in a library's code decides.

    Args:
        where: the place, for readers who want to check.
    """
    return {name: Fixed(value, where) for name, value in values.items()}


class TrainedFields(NamedTuple):
    """Fields of the schema that a training script's records state."""

    stated: Mapping[str, Any]
    """Fields of the model itself."""
    fallback: Mapping[str, Any]
    """Fields of the architecture that the model started from, used where no other source states them."""


class Settings(Protocol):
    """Reads and writes the config files that a library keeps beside the weights."""

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the files are this dialect's; the other methods take only such files."""
        ...

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema's fields that the files state.

        Raises:
            ConfigError: they state a model that no schema can express.
        """
        ...

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return the files' preprocessing, class names and licence, given the fields that they state."""
        ...

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return the contents of the files to write beside the weights, by name; metadata that they
        cannot express are left out."""
        ...


@dataclass(frozen=True)
class Dialect:
    """One library's names and layouts for a Vision Transformer's tensors, and its conventions."""

    name: str
    """Name for `--to`."""
    title: str
    """Name of the library, in words."""
    family: str
    """Name for `--to` of a group of related dialects; the best that can express the schema is taken."""
    tables: tuple[Table, ...]
    """Alternative tables; the one that leaves the fewest tensors over is used, the first of several."""
    marks: tuple[str, ...]
    """Tensors by which the dialect is recognised: each must be there. A mark that starts with ``!`` must
    not; one that ends with ``:2`` must have two axes; of several joined by ``|`` one is enough."""
    config_marks: tuple[str, ...] = ()
    """Weaker marks that are enough if a config file names this dialect; empty means `marks`."""
    can: Mapping[str, Any] = field(default_factory=dict)
    """Values of each field that the library can compute, `ANY` for all; a field that is neither here nor
    in `SIZES` or `NEUTRAL` can only have the schema's default. Values that depend on other fields are a
    function of the schema."""
    older: Mapping[str, Any] = field(default_factory=dict)
    """More values of fields, `ANY` for all, that older files have: read, and never written."""
    limits: Callable[[ViTConfig], Iterator[str]] = lambda cfg: iter(())
    """Yields further reasons why the dialect cannot express a schema, a sentence each."""
    fixed: Mapping[str, Fixed] = field(default_factory=dict)
    """Fields that the library's code fixes for every file, used where no file states them. Values that
    merely all of its authors' models share do not belong here."""
    follows: Callable[[Mapping[str, Any]], Mapping[str, Fixed]] = lambda fields: {}
    """Returns fields that the library's code derives from the fields known so far."""
    square: str = ""
    """Place in the library's code that takes a position table of unknown grid for a square; empty if
    there is none, and the image size is asked for."""
    mistaken_for: Callable[[Mapping[str, Any]], str] = lambda fields: ""
    """Returns the name of a dialect that has the same names and shapes for the fields known so far but
    computes another function, so that the user has to choose; empty if there is none."""
    stated: Callable[[Mapping[str, tuple[int, ...]]], dict[str, Any]] = lambda shapes: {}
    """Returns fields that follow from the shapes of the dialect's tensors but not of the twins'."""
    asks: tuple[str, ...] = ()
    """Fields to ask for although the library's code has one value: another model class uses the same
    tensor names with another value."""
    unshown: tuple[str, ...] = ()
    """Fields that follow from shapes in other dialects but not here, where the code computes several
    functions with the same shapes."""
    trained: Callable[[Mapping[str, Any]], TrainedFields] = lambda objects: TrainedFields({}, {})
    """Reads fields from the objects that a training script stores beside the tensors."""
    settings: Settings | None = None
    """Reads and writes the config files; None if there are none."""
    code: Callable[[ViTConfig, Metadata], dict[str, str]] = lambda cfg, metadata: {}
    """Returns Python files, by name, to write where `settings.files` raises because no config file can
    express the model; empty if code cannot either."""
    module: Callable[[ViTConfig], dict[str, str]] = lambda cfg: {}
    """Returns Python files, by name, to write beside the config files, which need them."""
    made_by: Callable[[ViTConfig], str] = lambda cfg: ""
    """Returns the Python call that builds the library's model of a schema; empty if there is none worth
    telling."""
    preprocess: Preprocess | None = None
    """Preprocessing by the library's code for its number of channels, used where no file states one."""
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    """Buffers by template of their names. The values of one that is also `ignored` are not checked."""
    body: str = ""
    """Prefix of the encoder's names in a model with a head beside it, such as ``vit.``; the tables leave
    it out, and files are read with and without it."""
    beside: tuple[str, ...] = ()
    """Prefixes of the names of such heads."""
    ignored: tuple[str, ...] = ()
    """Shell patterns of tensors that are no part of the encoder, left out with a note."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Shell patterns of tensors that only another model has, and that model in words."""
    container: Literal["safetensors", "npz", "torch", "msgpack", "hdf5", "equinox"] = "safetensors"
    """File format to write."""
    wrapper: str = ""
    """Key under which the library's own torch files hold the tensors. It is written around them; a file
    without it is taken for this dialect only if the user says so."""
    weights_name: str = "model.safetensors"
    """Name of the weights file in a folder; a dialect without settings writes no other file."""
    header: Mapping[str, str] = field(default_factory=lambda: {"format": "pt"})
    """Entries that the library expects in the header of safetensors."""
    writes: bool = True
    """Whether the dialect can be written too."""
    note: str = ""
    """Note for readers of such files on a part of the schema that the library does not implement."""

    def within_body(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Strip `body` from a file's names, giving the names of the tables."""
        short = {name.removeprefix(self.body): tensor for name, tensor in tensors.items()}
        return short if len(short) == len(tensors) else dict(tensors)

    def with_body(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Add `body` to the encoder's names if there is a head beside it, giving a file's names."""
        if not any(name.startswith(self.beside) for name in tensors):
            return dict(tensors)
        return {
            name if name.startswith(self.beside) else f"{self.body}{name}": tensor
            for name, tensor in tensors.items()
        }

    def problems(self, cfg: ViTConfig) -> dict[str, str]:
        """Return why this dialect cannot express a schema: a sentence by each field in the way.

        Sentences of `limits` are under the key "".
        """
        problems = {}
        for name in cfg.fields():
            allowed = self.allowed(name, cfg)
            value = getattr(cfg, name)
            if allowed is not ANY and not any(each in allowed for each in _spellings(cfg, name)):
                text = " or ".join(_word(each) for each in allowed)
                problems[name] = f"{name} = {_word(value)} ({self.name} has {text})"
        if not problems and (text := "; ".join(self.limits(cfg))):
            problems[""] = text
        return problems

    def allowed(self, name: str, cfg: ViTConfig) -> Any:
        """Return the values of a field that this dialect can express, given a schema's other fields."""
        if name in self.can:
            values = self.can[name]
            return values(cfg) if callable(values) else values
        return ANY if name in (*SIZES, *NEUTRAL) else (ViTConfig.model_fields[name].default,)


def whole_patches(cfg: ViTConfig) -> Any:
    """Return the values of ``patch_remainder`` of code that takes no image which its patches do not
    divide."""
    sides = zip(cfg.image_size, cfg.patch_size, strict=True)
    return ("refuse",) if any(side % patch for side, patch in sides) else ANY


def kv_heads(each: Sequence[int], heads: int) -> tuple[int, ...] | int | None:
    """Return the heads of keys of each block as a schema has them: one number if all blocks have the
    same, None if that is the number of heads of the queries."""
    if len(set(each)) != 1:
        return tuple(each)
    return None if each[0] == heads else each[0]


def agree(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a field are equal, or give the same function of the same tensors."""
    return one == other or (name in INITIAL and None not in (one, other))


def _spellings(cfg: ViTConfig, name: str) -> tuple[Any, ...]:
    """Return a field's value in a schema, followed by other values that mean the same there."""
    value = getattr(cfg, name)
    if name == "pos_embed_prefix":
        auto = cfg if value == "auto" else cfg.replace(pos_embed_prefix="auto")
        return ("auto", "none", "all") if auto.num_prefix_rows == 0 else (value,)
    return (value,)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
