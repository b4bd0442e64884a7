"""Scans a folder for checkpoints and lists them in a manifest; reads no tensor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from parity.porting.dialects import dialects
from parity.porting.fleet.folders import CheckpointPath, FolderWalk, walk
from parity.porting.fleet.lines import line_about, printable
from parity.porting.fleet.manifest import CheckpointFacts, FleetJob, FleetManifest, folder_for
from parity.porting.fleet.names import number_repeated, propose_name
from parity.porting.opening.opened import Opened, open_checkpoint
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.recognition.recognise import find
from vit_config import ConfigError, MissingFileError
from vit_config.errors import USER_ERRORS, OtherModelError, UnstatedError
from vit_config.waiting import Stage, nobody


class Scan(NamedTuple):
    """The result of scanning a folder."""

    manifest: FleetManifest
    walk: FolderWalk
    """The checkpoints' paths, and counts of what was left out."""


def scan(
    folder: str | Path,
    *,
    manifest: str | Path | None = None,
    on_stage: Stage = nobody,
) -> Scan:
    """Open every checkpoint below a folder and list it in a manifest.

    Args:
        manifest: the path that the manifest will be written to, if any.
        on_stage: called with each checkpoint before it is opened.

    Raises:
        MissingFileError: there is no such folder.
        ConfigError: `folder` is a file.
    """
    folder = Path(folder)
    if folder.is_file():
        raise ConfigError(f"{folder}: is a file; give the folder it is in")
    if not folder.is_dir():
        raise MissingFileError(f"{folder}: no such folder; give one with checkpoints in it")
    name = folder_for(folder, None if manifest is None else Path(manifest))
    walked, jobs = walk(folder), []
    for number, place in enumerate(walked.places, 1):
        on_stage(f"opening {place.path.relative_to(folder)}", 1, len(walked.places) - number)
        jobs.append(_job(place, folder))
    outs = number_repeated(propose_name(job.path, folder) for job in jobs)
    named = [job.replace(out=out) for job, out in zip(jobs, outs, strict=True)]
    return Scan(FleetManifest(folder=name, checkpoints=tuple(named)), walked)


def _job(place: CheckpointPath, folder: Path) -> FleetJob:
    relative = place.path.relative_to(folder).as_posix()
    name = printable(relative)
    if name != relative:
        return FleetJob(path=name, status="broken", said="has a name that is not plain text; rename it")
    if place.problem is not None:
        return FleetJob(path=name, status="broken", said=place.problem)
    try:
        opened = open_checkpoint(place.path)
        try:
            return FleetJob(path=name, status="ready", found=_facts(read_checkpoint(opened)))
        except UnstatedError as error:
            text, fields = line_about(place.path, error), dict.fromkeys(error.fields)
            return FleetJob(path=name, status="ask", said=text, found=_guess(opened), set=fields)
        except OtherModelError as error:
            return FleetJob(path=name, status="other", said=line_about(place.path, error), skip=True)
        except USER_ERRORS as error:
            return FleetJob(path=name, status="refused", said=line_about(place.path, error))
    except Exception as error:
        return FleetJob(path=name, status="broken", said=line_about(place.path, error))


def _facts(source: Checkpoint) -> CheckpointFacts:
    return CheckpointFacts(
        container=source.container.kind,
        dialect=source.dialect.name,
        why=source.why,
        config=source.config,
        origins=source.origins,
        license=source.license,
        preprocess=source.preprocess_origin if source.preprocess else "unknown",
        parameters=sum(math.prod(stored.shape) for stored in source.arrays.values()),
        bytes=sum(stored.nbytes for stored in source.arrays.values()),
    )


def _guess(opened: Opened) -> CheckpointFacts:
    """Return the facts known about a checkpoint that leaves fields open."""
    container = opened.container
    tensors, dialect, why = container.tensors, None, None
    try:
        model = find(opened, dialects())
        tensors, dialect, why = model.tensors, model.dialect.name, model.why
    except UnstatedError:
        pass  # several models: all tensors count
    return CheckpointFacts(
        container=container.kind,
        dialect=dialect,
        why=why,
        parameters=sum(math.prod(stored.shape) for stored in tensors.values()),
        bytes=sum(stored.nbytes for stored in tensors.values()),
    )
