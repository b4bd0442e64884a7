"""Conversion of a checkpoint to another dialect: read, rewrite exactly, write tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from parity.porting.dialects.records.hf.preprocessor import FILE as PIXELS
from parity.porting.dialects.records.own import OWN
from parity.porting.dialects.sidecars import texts, unsaid
from parity.porting.formats import (
    write_equinox,
    write_hdf5,
    write_msgpack,
    write_npz,
    write_torch,
)
from parity.porting.formats.base import Progress
from parity.porting.formats.flatten import nested
from parity.porting.formats.suffixes import PROGRAMS
from parity.porting.opening.hub import is_name
from parity.porting.opening.opened import BRANCH
from parity.porting.opening.provenance import Hop, digest_of_source, to_json
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.text.tokens import copy_tokenizer
from parity.porting.writing.channels import Rule
from parity.porting.writing.conversion_plan import Target, asked_at_once, plan
from parity.porting.writing.reopened import open_by_library, reopen
from vit_config import ConfigError, ViTConfig
from vit_config.files.atomic import Check, accept, atomic_file, atomic_folder, check_spares
from vit_config.files.safetensors_stream import Late, ignore, write_stream
from vit_config.pretrained import Reading

SUFFIXES = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".msgpack": "msgpack",
    ".h5": "hdf5",
    ".pth": "torch",
    ".pt": "torch",
    ".bin": "torch",
}
"""File format by suffix."""

UNKNOWN = "0" * 64
"""Placeholder for a digest that is still being computed."""


@dataclass(frozen=True)
class Converted:
    """The result of a conversion: the written file or folder."""

    path: Path
    """The written file or folder."""
    target: Target
    hops: tuple[Hop, ...]
    """Provenance of the weights from the first known source."""
    notes: tuple[str, ...]
    """Changes that were made, a sentence each."""
    warnings: tuple[str, ...]
    """Warnings for the user, a sentence each."""
    hints: tuple[str, ...] = ()
    """How to build the model in the target's library, where no config file says it."""

    def __repr__(self) -> str:
        return f"Converted({str(self.path)!r}, dialect={self.dialect!r}, {self.target.nbytes:,} bytes)"

    @property
    def config(self) -> ViTConfig:
        """Schema of the written model."""
        return self.target.state.config

    @property
    def dialect(self) -> str:
        """The dialect's name."""
        return self.target.dialect.name

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self.target.nbytes


def convert(
    source: Checkpoint | str | Path | Any,
    *,
    to: str,
    out: str | Path,
    dtype: str | None = None,
    image_size: tuple[int, int] | int | None = None,
    num_classes: int | None = None,
    channels: int | None = None,
    by: Rule | None = None,
    prefix: str = "",
    wrapper: str | None = None,
    text: bool = False,
    allow_nonfinite: bool = False,
    no_open: bool = False,
    force: bool = False,
    progress: Progress = ignore,
    started: Progress | None = None,
    **reading: Unpack[Reading],
) -> Converted:
    """Convert a checkpoint to a dialect, as `parity.convert` does where it does not verify.

    Args:
        progress: called with the size of each run of bytes written.
        started: called first, with the number of bytes that will be written.
    """
    if not isinstance(source, Checkpoint):
        with asked_at_once(num_classes):
            source = read_checkpoint(source, **reading)
    out = Path(out)
    check_out(source, out, force)
    _check_place(out, prefix, wrapper)
    target = plan(
        source,
        to,
        dtype=dtype,
        image_size=image_size,
        num_classes=num_classes,
        channels=channels,
        by=by,
        prefix=prefix,
        wrapper=wrapper,
        allow_nonfinite=allow_nonfinite,
        text=text,
    )
    source = target.source
    if started is not None:
        started(target.nbytes)
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(digest_of_source, source.container)  # reads the whole source meanwhile

        def hops() -> tuple[Hop, ...]:
            return (*source.hops, source.hop(digest.result(), target.state.said))

        kind = SUFFIXES.get(out.suffix, target.dialect.container)
        writing = Writing(target, header_of(target, kind), lambda: _late(hops()), progress, force)
        if SUFFIXES.get(out.suffix):
            writing.to_file(out, SUFFIXES[out.suffix], check=lambda path: reopen(path, target, out))
        else:
            writing.to_folder(out, no_open=no_open)
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
    """A target with its header and the options of writing."""

    target: Target
    header: Mapping[str, str]
    """Entries of the file's header."""
    late: Late
    """Returns the header's entries that are known only when every tensor is written."""
    progress: Progress
    force: bool

    def to_file(self, path: Path, kind: str, check: Check = accept) -> None:
        """Write the tensors to one file, without config files."""
        tensors, wrapper = self.target.tensors, self.target.wrapper
        progress = self.progress
        header: dict[str, Any] = {"metadata": self.header, "late": self.late}
        with atomic_file(path, force=self.force, check=check) as file:
            if kind == "safetensors":
                write_stream(file, tensors, sealed=True, progress=progress, **header)
            elif kind == "npz":
                write_npz(file, tensors, progress, **header)
            elif kind == "hdf5":
                write_hdf5(file, tensors, progress)
            elif kind == "equinox":
                write_equinox(file, tensors, self.files, progress)
            elif kind == "msgpack":
                write_msgpack(file, nested(tensors, "/"), progress)
            else:
                write_torch(file, tensors, progress, wrapper=wrapper, **header)

    @cached_property
    def files(self) -> dict[str, str]:
        """The texts of the target's config files, by name."""
        it = self.target
        return texts(it.dialect, it.state.config, it.metadata, it.text)

    def to_folder(self, path: Path, *, no_open: bool = False) -> None:
        """Write the tensors, and the config files of the target beside them."""
        dialect = self.target.dialect
        with atomic_folder(path, force=self.force) as folder:
            self.to_file(folder / dialect.weights_name, dialect.container)
            for name, text in self.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            if self.target.text is not None:
                copy_tokenizer(self.target.source.path, folder)
            reopen(folder, self.target, path)
            if not no_open:
                open_by_library(folder, self.target, path)


def _warnings(target: Target, out: Path) -> Iterator[str]:
    pixels, cfg = target.metadata.pixels, target.state.config
    if pixels is None and PIXELS in target.source.container.sidecars:
        yield f"{PIXELS} prepares pixels in a way that is not known here; give --preprocess FILE"
    elif pixels is None:
        yield "how pixels are prepared is unknown; give --preprocess FILE if you know"
    elif pixels.image_size not in (None, cfg.image_size) and not cfg.dynamic_image_size:
        made, taken = ("x".join(map(str, size)) for size in (pixels.image_size, cfg.image_size))
        yield f"images are prepared in {made}, and the model takes {taken}; --image-size fits it"
    if pixels and pixels.exif == "apply" and target.dialect.name != OWN.name:
        yield (
            f"photos are first turned as their camera noted, which {target.dialect.title} does not do;"
            " call PIL.ImageOps.exif_transpose before"
        )
    kind = SUFFIXES.get(out.suffix)
    if target.dialect.name == OWN.name and kind in ("msgpack", "hdf5"):
        yield f"{out.suffix} holds no schema: to read it again, state it by --set; .safetensors keeps it"
    if not kind:
        yield from filter(None, [unsaid(target.dialect, target.state.config, target.metadata)])


def _hints(target: Target, out: Path) -> Iterator[str]:
    dialect, cfg = target.dialect, target.state.config
    made_by = dialect.made_by(cfg)
    code = dialect.code(cfg, target.metadata) if made_by else {}
    if made_by and SUFFIXES.get(out.suffix):
        yield f"{dialect.title} of these weights: {made_by}"
    elif code:
        files = ", ".join(code)
        yield f"no config.json can express this model; {files} in the folder builds it: {made_by}"


def _check_place(out: Path, prefix: str, wrapper: str | None) -> None:
    """Refuse a prefix or a wrapper that a kind of output cannot have. ConfigError: with the reason."""
    kind = SUFFIXES.get(out.suffix)
    if prefix and kind is None:
        raise ConfigError(
            f"--prefix {prefix}: goes with a file, since the config files of a folder are of a model"
            f" without one; give a DST that ends in {', '.join(SUFFIXES)}"
        )
    if wrapper and kind != "torch":
        raise ConfigError(f"--wrapper {wrapper}: goes with a DST that ends in .pth, .pt or .bin")


def check_out(source: Checkpoint, out: Path, force: bool) -> None:
    """Refuse an output path that exists, is or holds the source, or has an unknown suffix.

    Raises:
        ConfigError: with the reason.
    """
    if is_name(str(out)):
        raise ConfigError(f"{out}: is a name on the Hub; write a folder, which `hf upload` sends there")
    if out.exists() and not force:
        raise ConfigError(f"{out}: already exists; give another path, or --force to replace it")
    check_spares(out, source.files, [each for each in source.container.files if each.is_dir()])
    if out.suffix in PROGRAMS.values():
        raise ConfigError(
            f"{out}: a program, not weights; parity export writes {', '.join(PROGRAMS.values())}"
        )
    if out.suffix not in SUFFIXES and out.suffix.lstrip(".").isalpha() and not out.is_dir():
        raise ConfigError(f"{out}: expected a folder, or a file that ends in {', '.join(SUFFIXES)}")


def header_of(target: Target, kind: str) -> dict[str, str]:
    """Return the header of a file of some kind; it has a placeholder for the source's digest."""
    source, branch = target.source, target.branch(kind)
    return {
        **target.dialect.header,
        "vit.schema": target.state.config.to_json(),
        **({BRANCH: branch} if branch else {}),
        **({} if target.text is None else target.text.header),
        **target.metadata.to_header(),
        "vit.dialect": target.dialect.name,
        **_late((*source.hops, source.hop(UNKNOWN, target.state.said))),
    }


def _late(hops: Sequence[Hop]) -> dict[str, str]:
    return {"vit.provenance": to_json(hops)}
