"""Checkpoints of a training state that detect damage: torch files with a digest of every tensor.

torch.load reads flipped bytes silently, so each file carries a SHA-256 digest of every tensor's
bytes, and a seal over everything else; nothing is trusted before it has been compared.

``torch.load(FOLDER/STEP.pt, weights_only=True)`` is a dictionary: ``format``, ``version``, ``run_id``,
``schema`` and ``recipe`` (JSON text), ``data`` (name and fingerprint), ``digests`` by ``model.NAME``,
``optimizer.NAME.MOMENT`` and ``ema.NAME``, ``seal``, and the entries of
`vit_torch.train.state.StoredState`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vit_config import CheckpointError
from vit_config.errors import first_line
from vit_config.files.atomic import atomic_file
from vit_config.files.held import check_unpacked
from vit_config.files.seal import json_digest
from vit_config.job import Job
from vit_torch.train.state import StoredState, named_moments
from vit_torch.weights import to_numpy
from vit_train.folder.checkpoints import KEEP, CheckpointStore, DamagedError, check_tensors
from vit_train.folder.unwritten import unwritten

FORMAT, VERSION = "vit-parity training state", 1


class Checkpoints(CheckpointStore[StoredState]):
    """The checkpoints of one run, in ``FOLDER/STEP.pt``.

    Args:
        folder: created when missing.
        run_id: identifies the run; a checkpoint of another run is refused.
        job: written into every checkpoint, with the fingerprint of the data set's contents.
        keep: number of newest checkpoints that are kept.
    """

    ending = ".pt"

    def __init__(self, folder: Path, *, run_id: str, job: Job, fingerprint: str, keep: int = KEEP):
        super().__init__(folder, run_id)
        self._keep, self._is_writing = keep, False
        self._about = {
            "run_id": run_id,
            "schema": job.model.to_json(),
            "recipe": job.recipe.to_json(),
            "data": {"name": job.data, "fingerprint": fingerprint},
        }
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: StoredState) -> None:
        """Write a state; when it is on the disk, remove the oldest checkpoints beyond those to keep."""
        self._is_writing = True
        try:
            save_checkpoint(self.folder, {**self._about, **state, "step": step})
        finally:
            self._is_writing = False
        for old in saved_steps(self.folder)[: -self._keep]:
            if old != self.pinned:
                self.path(old).unlink()

    @property
    def writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._is_writing

    def wait(self) -> None:
        """Do nothing: `save` returns when everything is on the disk."""

    def saved_steps(self) -> list[int]:
        """Return the steps that have checkpoints, damaged ones included, in order."""
        return saved_steps(self.folder)

    def restore(self, step: int, abstract: StoredState) -> StoredState:
        """Read the state of one step, to the host; its moments follow from its parameters."""
        content = read_checkpoint(self.path(step))
        if content["step"] != step:
            raise DamagedError(f"it says that it is of step {content['step']}")
        self._check_run(step, content["run_id"])
        _match(abstract, content)
        return {name: content[name] for name in StoredState.__annotations__}  # pyright: ignore


def saved_steps(folder: Path) -> list[int]:
    """Return the steps that have checkpoints in a folder, damaged ones included, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.pt") if path.stem.isdecimal())


def save_checkpoint(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write ``FOLDER/STEP.pt``, whole or not at all; format, digests and seal are added here.

    Args:
        content: the entries named at the top of this file, its tensors on the host.

    Raises:
        CheckpointError: there is a checkpoint of that step already, or the disk refuses.
    """
    path = folder / f"{content['step']}{Checkpoints.ending}"
    if path.exists():
        raise CheckpointError(f"{path}: already exists; nothing was written")
    whole = {**content, "format": FORMAT, "version": VERSION, "digests": _digests(to_named(content))}
    whole["seal"] = _seal(whole)
    try:
        with atomic_file(path) as file:
            torch.save(whole, file)
    except (OSError, RuntimeError) as error:  # torch's zip writer turns the former into the latter
        raise unwritten(folder, _short_reason(error)) from None
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, every byte of it as it was written.

    Raises:
        DamagedError: the file was changed after writing, or is not a checkpoint.
        CheckpointError: it was written in a later version of the format.
    """
    try:
        check_unpacked(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere in torch's reader
        raise DamagedError(f"not readable ({_short_reason(error)})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedError(f"it is not a {FORMAT}")
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: is in version {content.get('version')} of its format, this program reads version"
            f" {VERSION}; use the program that wrote it"
        )
    try:
        seal, digests = _seal(content), _digests(to_named(content))
    except (AttributeError, KeyError, TypeError, ValueError):  # an entry is missing, or of another type
        seal, digests = None, {}
    if seal is None or content.get("seal") != seal:
        raise DamagedError("its description was changed after writing")
    if wrong := [name for name in content["digests"] if digests.get(name) != content["digests"][name]]:
        raise DamagedError(f"the bytes of {', '.join(wrong)} do not match their digest")
    return content


def to_named(content: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return every tensor of a state by dotted name."""
    moments = {
        f"{name}.{moment}": value
        for name, values in named_moments(content["optimizer"]).items()
        for moment, value in values.items()
    }
    parts = {"model": content["model"], "optimizer": moments, "ema": content["ema"] or {}}
    return {f"{part}.{name}": x for part, tensors in parts.items() for name, x in tensors.items()}


def _digests(named: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: hashlib.sha256(to_numpy(x).tobytes()).hexdigest() for name, x in named.items()}


def _description(x: Any) -> list[Any]:
    return [list(x.shape), str(x.dtype).removeprefix("torch.")]


def _match(abstract: StoredState, content: Mapping[str, Any]) -> None:
    """Compare the tensors of a checkpoint with those that the run needs.

    Raises:
        CheckpointError: one message with every difference.
    """
    stored = {name: _description(x) for name, x in to_named(content).items()}
    expected = {name: _description(x) for name, x in to_named(abstract).items()}
    for name, moments in named_moments(content["optimizer"]).items():
        if like := expected.get(f"model.{name}"):
            for moment in moments:  # a parameter that was never updated has none
                expected[f"optimizer.{name}.{moment}"] = [[], "float32"] if moment == "step" else like
    check_tensors(stored, expected)


def _seal(content: Mapping[str, Any]) -> str:
    """Compute SHA-256 of everything but the tensors, and of every tensor's shape and type."""
    about = {name: x for name, x in content.items() if name not in ("model", "optimizer", "ema", "seal")}
    about["tensors"] = {name: _description(x) for name, x in to_named(content).items()}
    about["param_groups"] = content["optimizer"]["param_groups"]
    return json_digest(about)


def _short_reason(error: Exception) -> str:
    text = first_line(error)
    return text if len(text) <= 120 else text[:120] + "..."
