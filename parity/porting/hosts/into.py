"""`put_into` writes a tower of any dialect back into a host; all other bytes of the host are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from parity.measure.shown import write_json
from parity.porting.hosts.fitting import Fitted, fit
from parity.porting.hosts.rewriting import check_kind, copy_host, files_holding, files_of, rewrite
from parity.porting.opening.opened import Opened, open_checkpoint
from parity.porting.opening.provenance import digest_of, to_json
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.recognition.known import word
from vit_config import ConfigError, WeightsError
from vit_config.errors import UnstatedError
from vit_config.files.atomic import atomic_folder, beside, check_spares, check_writable, flush_all
from vit_config.files.places import place_all
from vit_config.pretrained import Reading

REPORT = "tower.json"
"""Name of the report written beside a host: the tower's provenance and the changed tensors."""


@dataclass(frozen=True)
class Put:
    """The result of `put_into`: a host with another tower."""

    path: Path
    dialect: str
    """Dialect of the host's tower."""
    changed: dict[str, float]
    """Relative distance of each changed tensor from the one before, by the names of the host."""
    same: int
    """Number of the tower's tensors that the host already had, bit for bit."""
    others: int
    """Number of tensors that the host has beside its tower."""
    files: tuple[str, ...]
    """Names of the files that were changed."""
    notes: tuple[str, ...]
    """Changes to the tower, a sentence each."""

    @property
    def summary(self) -> str:
        """Summary of the changes to the host, in words."""
        where = f" in {', '.join(self.files)}" if self.changed else ""
        return (
            f"{len(self.changed)} tensors of its {self.dialect} changed{where}, {self.same} as they"
            f" were; {self.others} others untouched"
        )


def put_into(
    tower: Checkpoint | str | Path,
    host: str | Path,
    out: str | Path,
    *,
    host_part: str | None = None,
    num_classes: int | None = None,
    force: bool = False,
    **reading: Unpack[Reading],
) -> Put:
    """Write a copy of a host with another tower.

    Args:
        tower: a file or folder of any dialect; `reading` are options of `read_checkpoint`.
        host: a file or folder, such as that of a PaliGemma.
        out: the path to write: a folder if the host is a folder, else a file.
        host_part: the tower to replace in a host that has several.
        num_classes: 0 removes the tower's head first.
        force: replace an existing `out`.

    Raises:
        ConfigError: the tower does not fit, with both values; or this kind of host cannot be written.
        WeightsError: see `read_checkpoint`.
    """
    tower = tower if isinstance(tower, Checkpoint) else read_checkpoint(tower, **reading)
    opened, out = open_checkpoint(host), Path(out)
    check_kind(opened.container)
    within, notes = _read(opened, tower, host_part)
    _check_out(opened, tower, out, force)
    fitted = fit(tower, within, num_classes=num_classes)
    every = files_of(opened.container)
    changed = {name: change for name, change in _changes(within, fitted) if change}
    files = [str(each) for each in files_holding(opened.container, [*changed])]
    done = (*notes, *fitted.said)
    hops = (*tower.hops, tower.hop(digest_of(tower.container.files), done))
    report = {
        "tower": json.loads(to_json(hops)),
        "host": {"source": opened.name, "digest": digest_of(opened.container.files)},
        "files": [Path(each).name for each in files],
        "changed": changed,
    }

    def write(copy: Path) -> None:
        copy_host(opened.path, copy, every)
        rewrite(opened.container, copy, {name: fitted.tensors[name] for name in changed})
        _check(copy, out, opened, fitted)
        beside = copy / REPORT if copy.is_dir() else copy.with_name(f"{out.name}.{REPORT}")
        write_json(beside, report)

    if opened.path.is_dir():
        with atomic_folder(out, force=force) as folder:
            write(folder)
    else:
        _write_file(out, write)
    return Put(
        path=out,
        dialect=within.dialect.name,
        changed=changed,
        same=len(fitted.tensors) - len(changed),
        others=len(opened.container.tensors) - len(fitted.tensors),
        files=tuple(Path(each).name for each in files),
        notes=(*tower.notes, *done),
    )


def _read(opened: Opened, tower: Checkpoint, part: str | None) -> tuple[Checkpoint, tuple[str, ...]]:
    """Read the tower in a host, taking fields that its file leaves open from the new tower."""
    try:
        return read_checkpoint(opened, part=part), ()
    except UnstatedError as error:
        if not error.fields:
            raise ConfigError(str(error).replace("--part", "--into-part")) from None
        given = {name: getattr(tower.config, name) for name in error.fields}
    text = ", ".join(f"{name} = {word(value)}" for name, value in given.items())
    note = f"the host's file does not say {', '.join(given)}; the tower has {text}"
    return read_checkpoint(opened, part=part, given=given), (note,)


def _check_out(host: Opened, tower: Checkpoint, out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise ConfigError(f"{out}: already exists; give another path, or --force to replace it")
    check_spares(out, (*host.files, *tower.files))
    suffix = host.path.suffix
    if host.path.is_file() and out.suffix != suffix:
        raise ConfigError(f"{out}: expected a file that ends in {suffix}, as the host {host.path} does")


def _changes(host: Checkpoint, fitted: Fitted) -> Iterator[tuple[str, float]]:
    """Yield the relative distance of each new tensor from the host's; 0 if every bit is the same."""
    for name, stored in fitted.tensors.items():
        new, old = stored.load(), host.container.tensors[name].load()
        if new.tobytes() == old.tobytes():
            yield name, 0.0
            continue
        new, old = new.astype(np.float64), old.astype(np.float64)
        size = float(np.linalg.norm(old))
        change = float(np.linalg.norm(new - old))
        yield name, (change / size if size else change) or float(np.finfo(np.float64).tiny)


def _check(copy: Path, out: Path, host: Opened, fitted: Fitted) -> None:
    """Check the written copy: the tower's tensors must be the new ones, all others unchanged."""
    written = open_checkpoint(copy).container.tensors
    before = host.container.tensors
    if written.keys() != before.keys():
        raise WeightsError(f"{out}: what was written has not the tensors of the host; nothing is left")
    for name, stored in written.items():
        expected = fitted.tensors.get(name, before[name])
        if stored.dtype != expected.dtype or stored.load().tobytes() != expected.load().tobytes():
            raise WeightsError(f"{out}: {name} was not written as it should be; nothing is left")


def _write_file(out: Path, write: Callable[[Path], None]) -> None:
    """Write a file and its report to a temporary folder, and move both into place."""
    check_writable(out)
    with beside(out) as folder:
        write(folder / out.name)
        flush_all(folder)
        made = sorted(folder.iterdir(), reverse=True)  # the report, then the host
        place_all([(each, out.absolute().with_name(each.name)) for each in made])
