"""What a dialect is: a table of names, the schemas it can say, and what its code takes for granted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from parity.porting.dialects.table import Table
from parity.porting.metadata import Metadata
from vit_config import Preprocess, ViTConfig

T = TypeVar("T")

ANY = object()
"""Every value that a field may have."""

SIZES = (
    "image_size", "patch_size", "in_channels", "hidden_size", "depth", "num_heads", "mlp_dim",
    "num_classes",
)  # fmt: skip
"""Fields that every format has."""

NEUTRAL = (
    "pos_embed_resize", "dynamic_image_size", "patch_remainder", "init",
    "dropout_embed", "dropout_patch", "dropout_attention", "dropout_attention_out",
    "dropout_mlp_inner", "dropout_mlp_outer", "dropout_head", "stochastic_depth",
)  # fmt: skip
"""Fields that act in training alone, or when an image of another size comes."""

INITIAL = ("layer_scale",)
"""Fields whose number is where training began: of a trained model the function is the same, whatever it
is, as long as there is one."""

FALLBACK_FIELDS = (
    "image_size", "patch_remainder", "num_classes", "pos_embed_prefix", "head_bias", "head_hidden",
)  # fmt: skip
"""Fields in which a fine-tuned model may differ from the preset it began as."""

Buffer = Callable[[ViTConfig], np.ndarray | None]
"""Makes a tensor that a library keeps beside its parameters and that the schema determines; None where
the library's model has none."""


class Unsaid(NamedTuple):
    """In place of a field's value: what a file states and no schema says, though it does not matter."""

    said: str
    """The entry."""
    why: str
    """Why another value may be given."""


class Fixed(NamedTuple):
    """What a library's code gives a field in every model of a format."""

    value: Any
    by: str
    """Where in that code."""


def by_code(where: str, **values: Any) -> dict[str, Fixed]:
    """Fields that one place of a library's code decides for every file of a format.

    Args:
        where: the place, for a reader who wants to look.
    """
    return {name: Fixed(value, where) for name, value in values.items()}


class Trained(NamedTuple):
    """Fields of the schema that a training script's records state."""

    stated: Mapping[str, Any]
    """Of the model."""
    fallback: Mapping[str, Any]
    """Of the architecture that the model began as, where nothing else says them."""


class Settings(Protocol):
    """The config files that an ecosystem keeps beside the weights."""

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Whether these are this dialect's; the other methods are asked of such only."""
        ...

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """The schema's fields that they state.

        Raises:
            ConfigError: they state what no schema can say.
        """
        ...

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """What they state of pixels, names of classes and licence, given the fields that they state."""
        ...

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """The files to write beside the weights, their contents by name; without what they cannot say
        of the metadata."""
        ...


@dataclass(frozen=True)
class Dialect:
    """One way to spell a Vision Transformer."""

    name: str
    """What `--to` calls it."""
    title: str
    """Whose it is, in words."""
    family: str
    """What `--to` calls it and its relatives; the first that can say a schema is taken."""
    tables: tuple[Table, ...]
    """The one that leaves the fewest tensors over is read or written, the first of several."""
    marks: tuple[str, ...]
    """Tensors by which it is recognised: each must be there. A mark that starts with ``!`` must not; one
    that ends with ``:2`` must have two axes; of several with ``|`` between them one is enough."""
    told: tuple[str, ...] = ()
    """The marks that are enough where a config file says that it is of this dialect, if fewer are."""
    can: Mapping[str, Any] = field(default_factory=dict)
    """Which values of a field the library computes, `ANY` for all; of a field that is not named and not
    in `SIZES` or `NEUTRAL`, only the schema's default. Where it depends on other fields, a function
    from the schema to the values."""
    older: Mapping[str, Any] = field(default_factory=dict)
    """Other values of fields that its older files have, `ANY` for all: read, and never written."""
    limits: Callable[[ViTConfig], Iterator[str]] = lambda cfg: iter(())
    """What else it cannot say, a sentence each."""
    fixed: Mapping[str, Fixed] = field(default_factory=dict)
    """Fields that the library's code decides for every file of the format, where no file states them;
    what its authors' own models happen to have is none of them."""
    follows: Callable[[Mapping[str, Any]], Mapping[str, Fixed]] = lambda fields: {}
    """Fields that the library's code derives from the others, given as far as they are known."""
    square: str = ""
    """Where the library's code takes a position table of unknown grid for a square; empty where no code
    does, so that the image size is asked for."""
    mistaken_for: Callable[[ViTConfig], str] = lambda cfg: ""
    """The dialect whose files have the same names and shapes where the schema is this one, and another
    function; empty where there is none. Then the user has to say which it is."""
    stated: Callable[[Mapping[str, tuple[int, ...]]], dict[str, Any]] = lambda shapes: {}
    """Fields that the shapes of its own tensors state and those of the twins' tensors do not."""
    asks: tuple[str, ...] = ()
    """Fields in which files of these names differ though the library's code has one value: another model
    class spells its tensors alike."""
    unshown: tuple[str, ...] = ()
    """Fields that shapes show in other formats and not in this one, as its code makes several functions
    of the same shapes."""
    trained: Callable[[Mapping[str, Any]], Trained] = lambda objects: Trained({}, {})
    """What the numbers and names say that a training script keeps beside the tensors."""
    settings: Settings | None = None
    """Its config files; None where it has none."""
    code: Callable[[ViTConfig, Metadata], dict[str, str]] = lambda cfg, metadata: {}
    """Makes Python files, by name, to write where `settings.files` raises because no config file can say
    a model; nothing where no code can either."""
    made_by: Callable[[ViTConfig], str] = lambda cfg: ""
    """The call in Python that makes the library's model of a schema, where one does and it is worth
    telling."""
    preprocess: Preprocess | None = None
    """How the library's code prepares pixels of so many channels, where no file states it."""
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    """Templates of tensors that are not parameters. What is in one that is also `ignored` does not
    matter."""
    body: str = ""
    """What the names of the encoder begin with where a head stands beside it, such as ``vit.``; the
    tables are without it. Read with and without."""
    beside: tuple[str, ...] = ()
    """What the names of such heads begin with."""
    ignored: tuple[str, ...] = ()
    """Shell patterns of tensors that are no part of the encoder, left out and said."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Shell patterns of tensors that only another model has, and what that model is."""
    container: Literal["safetensors", "npz", "torch", "msgpack"] = "safetensors"
    """The kind of file it is written to."""
    wrapper: str = ""
    """The key under which its library's own torch files hold the tensors. It is written around them, and
    without it a file is taken for one of this dialect only if the user says so."""
    weights_name: str = "model.safetensors"
    """The name of that file in a folder; of a dialect without settings the file stands alone."""
    header: Mapping[str, str] = field(default_factory=lambda: {"format": "pt"})
    """What the library wants to see in the header of safetensors."""
    writes: bool = True
    """Whether it is written too."""
    note: str = ""
    """What whoever reads such a file is told: something of the schema that its library does not do."""

    def within_body(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Tensors of a file by the names that the tables have."""
        short = {name.removeprefix(self.body): tensor for name, tensor in tensors.items()}
        return short if len(short) == len(tensors) else dict(tensors)

    def with_body(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Tensors that the tables made by the names that a file has."""
        if not any(name.startswith(self.beside) for name in tensors):
            return dict(tensors)
        return {
            name if name.startswith(self.beside) else f"{self.body}{name}": tensor
            for name, tensor in tensors.items()
        }

    def problems(self, cfg: ViTConfig) -> dict[str, str]:
        """What keeps this dialect from saying a schema: a sentence for each field in the way.

        Sentences of `limits` are under the key "".
        """
        found = {}
        for name in cfg.fields():
            allowed = self.allowed(name, cfg)
            value = getattr(cfg, name)
            if allowed is not ANY and not any(each in allowed for each in _spellings(cfg, name)):
                said = " or ".join(_word(each) for each in allowed)
                found[name] = f"{name} = {_word(value)} ({self.name} has {said})"
        if not found and (said := "; ".join(self.limits(cfg))):
            found[""] = said
        return found

    def allowed(self, name: str, cfg: ViTConfig) -> Any:
        """The values of a field that this dialect can say beside the others of a schema."""
        if name in self.can:
            values = self.can[name]
            return values(cfg) if callable(values) else values
        return ANY if name in (*SIZES, *NEUTRAL) else (ViTConfig.model_fields[name].default,)


def agree(name: str, one: Any, other: Any) -> bool:
    """Whether two values of a field are the same, or make the same function of the same tensors."""
    return one == other or (name in INITIAL and None not in (one, other))


def _spellings(cfg: ViTConfig, name: str) -> tuple[Any, ...]:
    """The values of a field that mean the same in this schema, its own first."""
    value = getattr(cfg, name)
    if name == "pos_embed_prefix" and value in ("auto", "none"):
        auto = cfg if value == "auto" else cfg.replace(pos_embed_prefix="auto")
        return ("auto", "none") if auto.num_prefix_rows == 0 else (value,)
    return (value,)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
