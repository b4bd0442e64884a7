"""Any checkpoint to any dialect: read, rewrite exactly, write as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.porting.anomalies import refuse_not_finite
from parity.porting.checkpoint import Checkpoint, read_checkpoint
from parity.porting.dialects import called
from parity.porting.dialects.buffers import make_buffers
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.rewrites import CannotHoldError, State, express
from parity.porting.dialects.sidecars import texts, unsaid
from parity.porting.dialects.table import bind_ours
from parity.porting.dialects.transfer import write
from parity.porting.formats import write_msgpack, write_npz, write_safetensors, write_torch
from parity.porting.formats.base import Progress, Stored
from parity.porting.formats.flatten import nested
from parity.porting.metadata import Card
from parity.porting.provenance import Hop, digest_of, to_json
from parity.porting.transform import as_type, resized, with_classes
from vit_config import ConfigError, ViTConfig
from vit_config.files.atomic import atomic_folder
from vit_config.files.safetensors_stream import Late, ignore

SUFFIXES = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".msgpack": "msgpack",
    ".pth": "torch",
    ".pt": "torch",
    ".bin": "torch",
}
"""The kind of file that a name asks for."""


NONFINITE = "values that are not finite may pass, as asked"
UNKNOWN = "0" * 64
"""Stands for a digest that is still computed."""


@dataclass(frozen=True)
class Target:
    """What will be written, nothing read or written yet."""

    source: Checkpoint
    dialect: Dialect
    state: State
    card: Card
    tensors: dict[str, Stored]
    """By the target's names."""

    unchanged: bool
    """Whether nothing but names and layouts differs from the source."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(stored.nbytes for stored in self.tensors.values())


@dataclass(frozen=True)
class Converted:
    """What was written."""

    path: Path
    """The file, or the folder."""
    target: Target
    hops: tuple[Hop, ...]
    """The way from the first source that is known."""
    notes: tuple[str, ...]
    """What was done, a sentence each."""
    warnings: tuple[str, ...]
    """What the user should know, a sentence each."""
    hints: tuple[str, ...] = ()
    """How the target's library makes the model, where no config file says it."""

    @property
    def config(self) -> ViTConfig:
        """The schema of what was written."""
        return self.target.state.config

    @property
    def dialect(self) -> str:
        """The dialect's name."""
        return self.target.dialect.name

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self.target.nbytes


def plan(
    source: Checkpoint,
    to: str,
    *,
    dtype: str | None = None,
    image_size: tuple[int, int] | None = None,
    num_classes: int | None = None,
    allow_nonfinite: bool = False,
) -> Target:
    """Rewrite a checkpoint for a dialect, or for the first of a family that can say it.

    Args:
        allow_nonfinite: let NaN and infinite values pass; else reading a tensor that has some raises a
            WeightsError.

    Raises:
        ConfigError: the dialect cannot hold the model, or a change cannot be made.
    """
    card, said = source.card, (NONFINITE,) if allow_nonfinite else ()
    arrays = source.arrays if allow_nonfinite else refuse_not_finite(source.arrays, source.path)
    state = State(source.config, arrays, said)
    if image_size is not None:
        state = resized(state, image_size)
        card = card.replace(pixels=card.pixels and card.pixels.replace(image_size=None))
    if num_classes is not None:
        state = with_classes(state, num_classes)
        same = num_classes == source.config.num_classes
        card = card if same else card.replace(class_names=None)
    if dtype is not None:
        state = as_type(state, dtype)
    dialect, state = _expressed(state, to)
    tried = [bind_ours(table, state.config, state.arrays) for table in dialect.tables]
    bound, left = min(tried, key=lambda result: len(result[1]))
    if left:
        raise ConfigError(f"{dialect.name} has no place for {', '.join(left[:6])}")
    tensors = write(bound, state.arrays, state.config)
    dtype_of_all = next(iter(state.arrays.values())).dtype
    tensors = dialect.with_body(tensors | make_buffers(dialect, state.config, dtype_of_all))
    unchanged = dtype is None and image_size is None and num_classes is None
    return Target(source, dialect, state, card, tensors, unchanged)


def convert(
    source: Checkpoint | str | Path,
    *,
    to: str,
    out: str | Path,
    dtype: str | None = None,
    image_size: tuple[int, int] | None = None,
    num_classes: int | None = None,
    allow_nonfinite: bool = False,
    license_allow: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress = ignore,
    started: Progress | None = None,
    **reading: Any,
) -> Converted:
    """Convert a checkpoint to a dialect.

    Args:
        source: a file or folder of any dialect; with `reading`, options of `read_checkpoint`.
        to: a dialect, or a family of them such as ``hf``.
        out: a file, told by its suffix, or a folder that gets the config files of the target too.
        dtype: the type of all tensors; None keeps them.
        image_size: height and width in pixels, if another one.
        num_classes: 0 takes the head off, and a pooler; another number puts a head of zeros on.
        allow_nonfinite: let NaN and infinite values pass; that is written into the provenance.
        license_allow: licences that may pass; None lets everything pass.
        force: replace what is at `out`.
        progress: is told of every stretch of bytes that is written.
        started: is told before that how many bytes there will be.

    Raises:
        ConfigError: the target cannot hold the model; every field in the way is named.
        WeightsError: see `read_checkpoint`; also values that are not finite, every such tensor named.
        MissingFileError: there is no such file, or no folder to write in.
    """
    if not isinstance(source, Checkpoint):
        source = read_checkpoint(source, **reading)
    out = Path(out)
    _check_license(source, license_allow)
    check_out(source, out, force)
    target = plan(
        source,
        to,
        dtype=dtype,
        image_size=image_size,
        num_classes=num_classes,
        allow_nonfinite=allow_nonfinite,
    )
    if started is not None:
        started(target.nbytes)
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(digest_of, source.container.files)  # reads all of it, meanwhile

        def hops() -> tuple[Hop, ...]:
            return (*source.hops, source.hop(digest.result(), target.state.said))

        writing = Writing(target, _metadata(target), lambda: _late(hops()), progress, force)
        if SUFFIXES.get(out.suffix):
            writing.to_file(out, SUFFIXES[out.suffix])
        else:
            writing.to_folder(out)
    return Converted(
        path=out,
        target=target,
        hops=hops(),
        notes=hops()[-1].done,
        warnings=tuple(_warnings(target, out)),
        hints=tuple(_hints(target, out)),
    )


@dataclass(frozen=True)
class Writing:
    """How a target is written."""

    target: Target
    metadata: Mapping[str, str]
    late: Late
    """What of the metadata is known when every tensor is written."""
    progress: Progress
    force: bool

    def to_file(self, path: Path, kind: str) -> None:
        """Write the tensors alone."""
        tensors, wrapper = self.target.tensors, self.target.dialect.wrapper
        options: dict[str, Any] = {"progress": self.progress, "force": self.force}
        said: dict[str, Any] = {"metadata": self.metadata, "late": self.late}
        if kind == "safetensors":
            write_safetensors(path, tensors, sealed=True, **said, **options)
        elif kind == "npz":
            write_npz(path, tensors, **said, **options)
        elif kind == "msgpack":
            write_msgpack(path, nested(tensors, "/"), **options)
        else:
            write_torch(path, tensors, wrapper=wrapper, **said, **options)

    def to_folder(self, path: Path) -> None:
        """Write the tensors, and the config files of the target beside them."""
        dialect = self.target.dialect
        files = texts(dialect, self.target.state.config, self.target.card)
        with atomic_folder(path, force=self.force) as folder:
            self.to_file(folder / dialect.weights_name, dialect.container)
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")


def _warnings(target: Target, out: Path) -> Iterator[str]:
    if target.card.pixels is None:
        yield "nobody says how pixels are prepared; give --preprocess FILE if you know"
    if not SUFFIXES.get(out.suffix):
        yield from filter(None, [unsaid(target.dialect, target.state.config, target.card)])


def _hints(target: Target, out: Path) -> Iterator[str]:
    dialect, cfg = target.dialect, target.state.config
    made_by = dialect.made_by(cfg)
    code = dialect.code(cfg, target.card) if made_by else {}
    if made_by and SUFFIXES.get(out.suffix):
        yield f"{dialect.title} of these weights: {made_by}"
    elif code:
        yield f"no config.json can say this model; {', '.join(code)} in the folder makes it: {made_by}"


def _expressed(state: State, to: str) -> tuple[Dialect, State]:
    """The dialect that needs the fewest rewritings, of those that can say the model."""
    found: list[tuple[Dialect, State]] = []
    refused: list[CannotHoldError] = []
    for dialect in called(to):
        if not dialect.writes:
            continue
        try:
            found.append((dialect, express(state, dialect)))
        except CannotHoldError as error:
            refused.append(error)
    if not found:
        raise ConfigError(_refusal(to, refused))
    return min(found, key=lambda each: len(each[1].said))


def _refusal(to: str, refused: Sequence[CannotHoldError]) -> str:
    """Why no dialect of a family can hold a model: what is in the way of all, and of the nearest."""
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


def _check_license(source: Checkpoint, allow: Sequence[str] | None) -> None:
    if allow is None:
        return
    told = source.license
    if told is None:
        raise ConfigError(
            f"{source.path}: states no licence, and only {', '.join(allow)} may pass; give --license"
            " NAME if you know it"
        )
    if told.lower() not in [each.lower() for each in allow]:
        raise ConfigError(f"{source.path}: is under {told}, and only {', '.join(allow)} may pass")


def check_out(source: Checkpoint, out: Path, force: bool) -> None:
    """Refuse to write where something is already, where it was read, or what is no kind of file here.

    Raises:
        ConfigError: with the reason.
    """
    if out.exists() and not force:
        raise ConfigError(f"{out}: exists already; give another path, or --force to replace it")
    mine = {path.resolve() for path in (*source.container.files, source.path)}
    if out.resolve() in mine:
        raise ConfigError(f"{out}: is what is read; give another path")
    if out.suffix not in SUFFIXES and out.suffix.lstrip(".").isalpha() and not out.is_dir():
        raise ConfigError(f"{out}: expected a folder, or a file that ends in {', '.join(SUFFIXES)}")


def _metadata(target: Target) -> dict[str, str]:
    """What the written file says of itself; the source's digest is not known yet."""
    source = target.source
    return {
        **target.dialect.header,
        "vit.schema": target.state.config.to_json(),
        **target.card.to_metadata(),
        "vit.dialect": target.dialect.name,
        **_late((*source.hops, source.hop(UNKNOWN, target.state.said))),
    }


def _late(hops: Sequence[Hop]) -> dict[str, str]:
    return {"vit.provenance": to_json(hops)}
