"""The checkpoints of one run, whatever writes them: which is read, and what becomes of damaged ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from vit_config import CheckpointError

KEEP = 3
"""Number of checkpoints kept by default: the newest, and two to fall back to."""
Stored = TypeVar("Stored")
"""A training state on the host, as checkpoints keep it."""


class DamagedError(Exception):
    """Damage to one checkpoint; an older one may be undamaged."""


class CheckpointStore(ABC, Generic[Stored]):
    """The checkpoints of one run, in a folder: the newest, and one that is kept however old it is."""

    ending: ClassVar[str] = ""
    """Ending of a checkpoint's name, behind the step."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder, self.run_id = folder, run_id
        self.pinned: int | None = None
        """Step of the checkpoint that is kept however old it is."""

    @property
    @abstractmethod
    def writing(self) -> bool:
        """Whether a checkpoint is being written; any thread may ask."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until everything is on the disk. CheckpointError: the disk refuses."""

    @abstractmethod
    def save(self, step: int, state: Stored) -> None:
        """Write a state, which nobody may change until it is written.

        Raises:
            CheckpointError: there is a checkpoint of that step already, or the disk refuses.
        """

    @abstractmethod
    def saved_steps(self) -> list[int]:
        """Return the steps that have checkpoints, damaged ones included, in order."""

    @abstractmethod
    def restore(self, step: int, abstract: Stored) -> Stored:
        """Read the state of one step, to the host.

        Raises:
            DamagedError: the checkpoint is damaged.
            CheckpointError: the checkpoint is of another run or another model.
        """

    def restore_latest(
        self, abstract: Stored, *, warn: Callable[[str], None]
    ) -> tuple[int, Stored] | tuple[None, None]:
        """Return the newest undamaged checkpoint, as (step, state on the host).

        Newer, damaged ones are renamed to ``damaged-STEP``, out of the way of the run that goes on.

        Args:
            abstract: the state expected, of anything with shape and dtype.
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
                warn(f"checkpoint {self.path(step)} is damaged and skipped: {error}")
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

    def restore_pinned(self, abstract: Stored) -> Stored:
        """Read the state of the pinned step, as `restore` does.

        Raises:
            CheckpointError: the checkpoint is gone, or damaged.
        """
        assert self.pinned is not None
        try:
            return self.restore(self.pinned, abstract)
        except DamagedError as error:
            raise CheckpointError(
                f"{self.path(self.pinned)}: the best checkpoint is damaged: {error}; train again in"
                " another --run-dir"
            ) from None

    def path(self, step: int) -> Path:
        """Return the place of a checkpoint."""
        return self.folder / f"{step}{self.ending}"

    def _check_run(self, step: int, run_id: str) -> None:
        if run_id != self.run_id:
            raise CheckpointError(
                f"{self.path(step)}: belongs to run {run_id[:12]}, this is run {self.run_id[:12]}; move"
                " it back to its run, or undo the change to run.json"
            )

    def _set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint, so that its step can be written again and nothing is lost."""
        aside, number = self.folder / f"damaged-{step}{self.ending}", 1
        while aside.exists():
            number += 1
            aside = self.folder / f"damaged-{step}-{number}{self.ending}"
        self._rename(self.path(step), aside)

    def _rename(self, path: Path, aside: Path) -> None:
        path.rename(aside)


def check_tensors(stored: Mapping[str, list[Any]], expected: Mapping[str, list[Any]]) -> None:
    """Compare the tensors of a checkpoint with those that the run needs: [shape, dtype] by name.

    Raises:
        CheckpointError: one message with every difference.
    """
    problems = [f"{name}: not in the checkpoint" for name in expected if name not in stored]
    problems += [f"{name}: not in the model" for name in stored if name not in expected]
    problems += [
        f"{name}: {stored[name]} in the checkpoint, {expected[name]} in the model"
        for name in expected.keys() & stored.keys()
        if stored[name] != expected[name]
    ]
    if problems:
        raise CheckpointError("the checkpoint is of another model: " + "; ".join(sorted(problems)))
