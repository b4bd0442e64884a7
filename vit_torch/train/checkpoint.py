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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from vit_config import CheckpointError
from vit_config.files.atomic import atomic_file
from vit_config.files.json_digest import json_digest
from vit_config.job import Job
from vit_torch.train.state import StoredState, named_moments
from vit_torch.weights import to_numpy
from vit_train.unwritten import unwritten

KEEP = 3
"""Number of checkpoints kept by default: the newest, and two to fall back to."""
FORMAT, VERSION = "vit-parity training state", 1


class Checkpoints:
    """The checkpoints of one run, in ``FOLDER/STEP.pt``.

    Args:
        folder: created when missing.
        run_id: identifies the run; a checkpoint of another run is refused.
        job: written into every checkpoint, with the fingerprint of the data set's contents.
        keep: number of newest checkpoints that are kept.
    """

    def __init__(self, folder: Path, *, run_id: str, job: Job, fingerprint: str, keep: int = KEEP):
        self.folder = folder
        self.run_id, self._keep = run_id, keep
        self.pinned: int | None = None
        """Step of the checkpoint that is kept however old it is."""
        self.writing = False
        """Whether a checkpoint is being written."""
        self._about = {
            "run_id": run_id,
            "schema": job.model.to_json(),
            "recipe": job.recipe.to_json(),
            "data": {"name": job.data, "fingerprint": fingerprint},
        }
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: StoredState) -> None:
        """Write a state; when it is on the disk, remove the oldest checkpoints beyond those to keep.

        Raises:
            CheckpointError: there is a checkpoint of that step already, or the disk refuses.
        """
        self.writing = True
        try:
            save_checkpoint(self.folder, {**self._about, **state, "step": step})
        finally:
            self.writing = False
        for old in saved_steps(self.folder)[: -self._keep]:
            if old != self.pinned:
                _path(self.folder, old).unlink()

    def wait(self) -> None:
        """Do nothing: `save` returns when everything is on the disk."""

    def restore_latest(
        self, abstract: StoredState, *, warn: Callable[[str], None]
    ) -> tuple[int, StoredState] | tuple[None, None]:
        """Return the newest undamaged checkpoint, as (step, state on the host).

        Newer, damaged ones are renamed to ``damaged-STEP.pt``, out of the way of the run that goes on.

        Args:
            abstract: the state expected, of anything with shape and dtype; the moments follow from its
                parameters.
            warn: called with one line for each damaged checkpoint.

        Returns:
            (None, None) where there is no checkpoint at all.

        Raises:
            CheckpointError: all checkpoints are damaged, or one is of another run or another model.
        """
        steps = self.saved_steps()[::-1]
        for step in steps:
            try:
                state = self.restore(step, abstract)
            except DamagedError as error:
                warn(f"checkpoint {_path(self.folder, step)} is damaged and skipped: {error}")
                continue
            for bad in (s for s in steps if s > step):
                self._set_aside(bad)
            return step, state
        if steps:
            raise CheckpointError(
                f"{self.folder}: all {len(steps)} checkpoints are damaged; delete the folder to"
                " train from the start"
            )
        return None, None

    def saved_steps(self) -> list[int]:
        """Return the steps that have checkpoints, damaged ones included, in order."""
        return saved_steps(self.folder)

    def restore(self, step: int, abstract: StoredState) -> StoredState:
        """Read the state of one step, to the host.

        Raises:
            DamagedError: the checkpoint is damaged.
            CheckpointError: the checkpoint is of another run or another model.
        """
        path = _path(self.folder, step)
        content = read_checkpoint(path)
        if content["step"] != step:
            raise DamagedError(f"it says that it is of step {content['step']}")
        if content["run_id"] != self.run_id:
            raise CheckpointError(
                f"{path}: belongs to run {content['run_id'][:12]}, this is run {self.run_id[:12]}; move"
                " it back where it came from, or take back what was changed in run.json"
            )
        _match(abstract, content)
        return {name: content[name] for name in StoredState.__annotations__}  # pyright: ignore

    def restore_pinned(self, abstract: StoredState) -> StoredState:
        """Read the state of the pinned step, as `restore` does.

        Raises:
            CheckpointError: the checkpoint is gone, or damaged.
        """
        assert self.pinned is not None
        try:
            return self.restore(self.pinned, abstract)
        except DamagedError as error:
            raise CheckpointError(
                f"{_path(self.folder, self.pinned)}: the best checkpoint is damaged: {error}; train"
                " again in another --run-dir"
            ) from None

    def _set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint, so that its step can be written again and nothing is lost."""
        aside = self.folder / f"damaged-{step}.pt"
        number = 1
        while aside.exists():
            number += 1
            aside = self.folder / f"damaged-{step}-{number}.pt"
        _path(self.folder, step).rename(aside)


class DamagedError(Exception):
    """Damage to one checkpoint; an older one may be undamaged."""


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
    path = _path(folder, content["step"])
    if path.exists():
        raise CheckpointError(f"{path}: already exists; nothing was written")
    whole = {**content, "format": FORMAT, "version": VERSION, "digests": _digests(to_named(content))}
    whole["seal"] = _seal(whole)
    try:
        with atomic_file(path) as file:
            torch.save(whole, file)
    except (OSError, RuntimeError) as error:  # torch's zip writer turns the former into the latter
        raise unwritten(folder, _first_line(error)) from None
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, every byte of it as it was written.

    Raises:
        DamagedError: the file was changed after writing, or is not a checkpoint.
        CheckpointError: it was written in a later version of the format.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere in torch's reader
        raise DamagedError(f"not readable ({_first_line(error)})") from None
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


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step}.pt"


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
    problems = [f"{name}: not in the checkpoint" for name in expected if name not in stored]
    problems += [f"{name}: not in the model" for name in stored if name not in expected]
    problems += [
        f"{name}: {stored[name]} in the checkpoint, {expected[name]} in the model"
        for name in expected.keys() & stored.keys()
        if stored[name] != expected[name]
    ]
    if problems:
        raise CheckpointError("the checkpoint is of another model: " + "; ".join(sorted(problems)))


def _seal(content: Mapping[str, Any]) -> str:
    """Compute SHA-256 of everything but the tensors, and of every tensor's shape and type."""
    about = {name: x for name, x in content.items() if name not in ("model", "optimizer", "ema", "seal")}
    about["tensors"] = {name: _description(x) for name, x in to_named(content).items()}
    about["param_groups"] = content["optimizer"]["param_groups"]
    return json_digest(about)


def _first_line(error: Exception) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 120 else text[:120] + "..."
