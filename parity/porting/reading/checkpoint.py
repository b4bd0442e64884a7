"""Reads a checkpoint of any dialect into one common form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.dialects.buffers import compare_buffers
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.transfer import cast, letters, read
from parity.porting.formats.base import Container, Stored
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.opened import Opened
from parity.porting.opening.provenance import Hop, versions
from parity.porting.reading.adapters import files_of, with_adapter
from parity.porting.reading.in_file import find_model, match_model, refuse_foreign, refuse_other_tensors
from parity.porting.reading.live import open_source
from parity.porting.reading.notes import note_assumed, note_ignored, note_stripped, outside, unheld
from parity.porting.reading.origins import read_metadata, schema_origins, stated_preprocess
from parity.porting.recognition.axes import channels_first, one_frame
from parity.porting.recognition.matching import some
from parity.porting.recognition.recognise import PATCHES
from parity.porting.recognition.resolve import resolve
from vit_config import ConfigError, Preprocess, TextConfig, ViTConfig, WeightsError
from vit_config.base import Schema
from vit_config.errors import UnstatedError, naming

TEXT = "text."
"""Prefix of the text tower's fields among those that the user states."""


class Location(NamedTuple):
    """The location of a model in a file."""

    branch: str
    """Prefix that was stripped from every name; empty if there was none."""
    tensors: dict[str, Stored]
    """Every tensor under that prefix, also those of no encoder, by the rest of its name."""
    outside: int
    """Number of the file's tensors that are not under it."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in a file: its schema and metadata, and its tensors, which are not read yet."""

    opened: Opened
    """The opened files, and what they state."""
    dialect: Dialect
    why: str
    """How the dialect was recognised."""
    config: ViTConfig
    origins: dict[str, str]
    """Source of each field of the schema, in words."""
    place: Location
    """Location of the model in the file."""
    tensors: dict[str, Stored]
    """The model's tensors in the file, by the dialect's names."""
    arrays: dict[str, Stored]
    """The model's parameters by the twins' names, in PyTorch's layout; all of one type."""
    metadata: Metadata
    """Preprocessing, class names and licence."""
    preprocess_origin: str
    """Source of the preprocessing, in words."""
    stripped: tuple[str, ...]
    """Prefixes stripped from names, a sentence each."""
    altered: tuple[str, ...]
    """Tensors of the model itself turned or widened, values assumed, a sentence each."""
    ignored: tuple[str, ...] = ()
    """Tensors that are left out, by their names under the model's prefix."""
    beside: frozenset[str] = frozenset()
    """Ignored tensors of a text tower that is read too."""
    unheld: tuple[str, ...] = ()
    """Tensors of a trained classifier that no schema holds, by their names in the file."""
    text_given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the text tower beside it that the user stated, see `parity.porting.text.read`."""
    text_override: Mapping[str, Any] = field(default_factory=dict)
    """Fields of that tower in which the user overrules the file."""
    adapter: Path | None = None
    """Folder of the LoRA that is merged into the tensors."""

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name}: {self.dialect.name}, {len(self.tensors)} tensors>"

    @property
    def path(self) -> Path:
        """The file or folder."""
        return self.opened.path

    @property
    def name(self) -> str:
        """Name of the file; for a download from the Hub, the repository and the commit."""
        return self.opened.name

    @property
    def container(self) -> Container:
        """The whole content of the file."""
        return self.opened.container

    @property
    def files(self) -> tuple[Path, ...]:
        """The path that was opened, and every file that is read, the adapter's included."""
        return (*self.opened.files, *(() if self.adapter is None else files_of(self.adapter)))

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The files that the weights came through before this one."""
        return self.opened.header.hops

    @property
    def found_at(self) -> tuple[str, ...]:
        """Notes, a sentence each: stripped prefixes of names, skipped tensors outside the model."""
        count = self.place.outside - len(self.beside - self.place.tensors.keys())
        return (*self.stripped, *outside(count, self.place.branch))

    @property
    def changed(self) -> tuple[str, ...]:
        """Tensors of the model itself left out or widened, values assumed, a sentence each."""
        return (*note_ignored([n for n in self.ignored if n not in self.beside]), *self.altered)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about everything that reading stripped, left out, widened or assumed."""
        return (*self.found_at, *self.changed)

    def hop(self, digest: str, done: tuple[str, ...] = ()) -> Hop:
        """Return this checkpoint as a hop in the provenance of its weights.

        Args:
            digest: digest of its files, see `parity.porting.opening.provenance.digest_of`.
            done: changes made after reading, a sentence each.
        """
        return Hop(
            source=self.name,
            digest=digest,
            container=self.container.kind,
            dialect=self.dialect.name,
            license=self.license,
            done=(*self.notes, *done),
            versions=versions(),
        )

    @property
    def preprocess(self) -> Preprocess | None:
        """The metadata as one `Preprocess`; None if preprocessing is unknown."""
        return self.metadata.preprocess

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Name of each class, in the order of the logits; None if unknown."""
        return self.metadata.class_names

    @property
    def license(self) -> str | None:
        """Licence of the weights; None if unknown."""
        return self.metadata.license


def read_checkpoint(
    source: str | Path | Opened | Any,
    *,
    dialect: str | None = None,
    part: str | None = None,
    like: str | None = None,
    given: Mapping[str, Any] | None = None,
    override: Mapping[str, Any] | None = None,
    adapter: str | Path | None = None,
    preprocess: Preprocess | str | Path | None = None,
    license: str | None = None,
) -> Checkpoint:
    """Open a checkpoint of any dialect; its tensors are read when they are used.

    Args:
        source: a file or folder, or a name on the Hub, see `parity.porting.opening.hub`; an `Opened`
            that `open_checkpoint` returned; or a model or state dict in memory, see
            `parity.porting.reading.live`.
        dialect: the checkpoint's dialect; None recognises it.
        part: the model to take from a file that has several, such as ``state_dict_ema``.
        like: the preset that the model was built from, for fields that the file leaves open.
        given: fields of the schema that the file leaves open, stated by the user; those that begin with
            ``text.`` are fields of the text tower beside the model.
        override: fields of the schema that replace what the file states; a note says so.
        adapter: folder of a LoRA of PEFT, which is merged into the weights.
        preprocess: the preprocessing, if the user states it, or a JSON or TOML file of it; class names
            and licence that it leaves out are taken from the checkpoint, and pixels too if it was made
            of class names alone.
        license: the licence of the weights, if the user states it.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: the file holds no Vision Transformer of a known dialect, is damaged, or contradicts
            itself; or a model in memory computes another function than its modules state.
        ConfigError: a field that has to be stated was not, a stated value is not valid, or `given`
            contradicts the file.
    """
    for name, fields in (("given", given), ("override", override)):
        if not isinstance(fields, Mapping | None):
            raise ConfigError(f"{name} is a {type(fields).__name__}; give {name}={{FIELD: VALUE}}")
    preprocess = stated_preprocess(preprocess)
    given, override = given or {}, override or {}
    if twice := sorted(given.keys() & override.keys()):
        raise ConfigError(f"{', '.join(twice)}: both given and overridden; keep one")
    (given, text_given), (override, text_override) = _by_tower(given), _by_tower(override)
    _check_names(ViTConfig, given, override)
    _check_names(TextConfig, text_given, text_override)
    opened = open_source(source)
    whole = opened
    opened, merged = with_adapter(opened, adapter, lambda: find_model(whole, dialect, part))
    with naming(opened.path):
        model = find_model(opened, dialect, part)
        matched = match_model(opened, model)
        origins = schema_origins(opened, model, like, given, override)
        model, squeezed = one_frame(model, matched.bound, origins)
        model, turned, axes = channels_first(model, matched.bound, opened.container, origins)
        # some libraries write an empty tensor in place of none
        arrays = {
            n: each for n, each in read(matched.bound, model.tensors).items() if 0 not in each.shape
        }
        refuse_other_tensors(opened, model.dialect, arrays, {**given, **override})
        shapes = {name: stored.shape for name, stored in arrays.items()}
        heads = letters(matched.bound, model.tensors)
        width, has_head = shapes.get(PATCHES, (0,))[0], "head.weight" in shapes
        lost = unheld(opened, model, matched, width=width, has_head=has_head)
        try:
            resolved = resolve(model.dialect, shapes, heads, origins, axes)
        except UnstatedError as error:
            error.unheld = lost
            raise
        buffers = compare_buffers(model.dialect, resolved.config, model.tensors)
        refuse_foreign(model.dialect, resolved)
        made_of = {name: model.tensors[name] for one in matched.bound for name in one.theirs}
        arrays, widened = of_one_type(arrays, made_of)
        asked = like or opened.preset
        metadata, origin = read_metadata(opened, model.dialect, asked, preprocess, resolved.config)
        hops = opened.header.hops
    license = license or metadata.license or (hops[-1].license if hops else None)
    checkpoint = Checkpoint(
        opened=opened,
        dialect=model.dialect,
        why=model.why,
        config=resolved.config,
        origins=resolved.origins,
        place=Location(model.branch, model.tensors, model.outside),
        tensors={name: model.tensors[name] for name in matched.tensors},
        arrays=arrays,
        metadata=metadata.replace(license=license),
        preprocess_origin=origin,
        stripped=tuple(note_stripped(opened, model)),
        ignored=matched.ignored,
        unheld=lost,
        altered=(
            *merged,
            *squeezed,
            *turned,
            *buffers,
            *widened,
            *resolved.overridden,
            *opened.sidecars.notes(model.dialect),
            *note_assumed(model.dialect, resolved),
            *filter(None, (model.dialect.note,)),
        ),
        text_given=text_given,
        text_override=text_override,
        adapter=None if adapter is None else Path(adapter),
    )
    if opened.live is not None:
        opened.live.check(checkpoint)
    return checkpoint


def _by_tower(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide fields into those of the image tower, and those of the text tower without their prefix."""
    of_text = {name.removeprefix(TEXT): v for name, v in fields.items() if name.startswith(TEXT)}
    return {name: v for name, v in fields.items() if not name.startswith(TEXT)}, of_text


def _check_names(schema: type[Schema], *stated: Mapping[str, Any]) -> None:
    """Refuse fields that a schema does not have. Raises ConfigError, which suggests one."""
    for name, value in (each for fields in stated for each in fields.items()):
        if name not in schema.fields():
            schema(**{name: value})


def of_one_type(
    arrays: dict[str, Stored], tensors: Mapping[str, Stored]
) -> tuple[dict[str, Stored], list[str]]:
    """Cast tensors of several types to the widest of them, which holds every value of the others.

    Args:
        tensors: the file's tensors that the arrays are read from; one array may join several types.
    """
    types = {stored.dtype for stored in tensors.values() if 0 not in stored.shape}
    if odd := sorted(str(t) for t in types if not _is_float(t)):
        names = [name for name, stored in tensors.items() if str(stored.dtype) in odd]
        raise WeightsError(f"{some(names)}: of type {', '.join(odd)}, expected floating-point numbers")
    if len(types) == 1:
        return arrays, []
    widest = np.result_type(*types)
    note = f"widened {', '.join(sorted(map(str, types - {widest})))} to {widest}"
    return {name: cast(stored, widest) for name, stored in arrays.items()}, [note]


def _is_float(dtype: np.dtype) -> bool:
    return dtype.name in ("float16", "bfloat16", "float32", "float64")
