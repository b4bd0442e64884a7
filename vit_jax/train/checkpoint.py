"""Checkpoints of a training state that detect damage: Orbax files plus a digest of every tensor.

Orbax restores flipped bytes silently, casts types silently, and takes an empty folder for a step; so
each checkpoint carries its own list of shapes, types and digests, and no tensor is trusted before it
has been compared with that list (`digests.py`). Where several hosts train together, each writes and
digests the parts that its devices hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from etils import epath
from jax.experimental import multihost_utils

from vit_config import CheckpointError
from vit_config.errors import first_line
from vit_jax.train import description
from vit_jax.train.digests import describe, differing, in_shares
from vit_jax.train.hosts import said_by_any
from vit_train.folder.checkpoints import KEEP, CheckpointStore, DamagedError, check_tensors
from vit_train.folder.unwritten import unwritten


class Checkpoints(CheckpointStore[Any]):
    """The checkpoints of one run, in ``FOLDER/STEP``; close it, or use it in a `with` statement.

    Args:
        folder: created when missing.
        run_id: identifies the run; a checkpoint of another run is refused.
        keep: number of newest checkpoints that are kept.
    """

    def __init__(self, folder: Path, *, run_id: str, keep: int = KEEP):
        super().__init__(folder.absolute(), run_id)  # Orbax takes no other
        self._keep = keep
        options = ocp.CheckpointManagerOptions(preservation_policy=_Kept(self))
        self._verbosity = absl_logging.get_verbosity()
        absl_logging.set_verbosity(absl_logging.FATAL)  # this class reports what matters
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = partial(_unraisable, self._unraisable)
        self._manager = ocp.CheckpointManager(self.folder, item_names=("state", "meta"), options=options)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self.close()
        except CheckpointError as second:
            if error is None:
                raise
            error.add_note(str(second))  # why the block ended matters more

    def save(self, step: int, state: Any) -> None:
        """Start writing a state, of numpy arrays that nobody may change until they are written, or
        of arrays on the devices of several hosts, all of which call this."""
        if step in self._manager.all_steps():
            raise CheckpointError(f"{self.path(step)}: already exists; nothing was written")
        named = to_named(state)
        head = {"step": step, "run_id": self.run_id, "processes": jax.process_count()}
        meta = description.Save(head, describe(named))
        args = ocp.args.Composite(state=ocp.args.StandardSave(named), meta=meta)
        with self._writing():
            self._manager.save(step, args=args, force=True)

    def close(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            CheckpointError: the disk refuses; the checkpoints before the last are good.
        """
        with self._writing(), ExitStack() as stack:
            stack.callback(absl_logging.set_verbosity, self._verbosity)
            stack.callback(self._manager.close)
            self._manager.wait_until_finished()
        sys.unraisablehook = self._unraisable  # threads of a write that failed may still complain

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # any error of the writing thread of Orbax or TensorStore
            raise unwritten(self.folder, _short_reason(error)) from None

    @property
    def writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._manager.is_saving_in_progress()

    def wait(self) -> None:
        """Wait until everything is on the disk."""
        with self._writing():
            self._manager.wait_until_finished()

    def saved_steps(self) -> list[int]:
        """Return the steps that have checkpoints, damaged ones included, in order."""
        return sorted(self._manager.all_steps())

    def restore(self, step: int, abstract: Any) -> Any:
        """Read the state of one step, as numpy arrays.

        Several hosts all call this, with an `abstract` that has shardings. Each host reads and
        verifies its devices' shares, as arrays on the devices; a tensor written in parts that span
        several devices' shares it reads whole, as a numpy array. What one host finds wrong is
        raised on all.
        """
        with self._writing():
            self._manager.wait_until_finished()  # this step may still be being written
        state = damage = foreign = None
        try:
            state = self._read(step, abstract)
        except DamagedError as error:
            damage = str(error)
        except CheckpointError as error:
            foreign = str(error)
        # every host takes part in both, whatever it found: one that left would have the others wait
        if message := said_by_any(foreign):
            raise CheckpointError(message)
        if message := said_by_any(damage):
            raise DamagedError(message)
        return state

    def _read(self, step: int, abstract: Any) -> Any:
        """Read this process's share of a state; do not wait for others, which may find damage
        elsewhere."""
        expected, folder = to_named(abstract), epath.Path(self.path(step))
        try:
            meta = description.Handler().restore(folder / "meta")
        except Exception as error:  # a damaged file can fail anywhere in Orbax or TensorStore
            raise DamagedError(f"no readable description ({_short_reason(error)})") from None
        self._check_run(step, meta["run_id"])
        tensors = meta["tensors"]
        stored = {name: described[:2] for name, described in tensors.items()}
        check_tensors(stored, {name: [list(x.shape), str(x.dtype)] for name, x in expected.items()})
        # whole numpy arrays, wherever the tensors were saved from; or a share on each device
        target = {
            name: x if in_shares(x, tensors[name][2]) else np.empty(x.shape, x.dtype)
            for name, x in expected.items()
        }
        try:
            with closing(ocp.StandardCheckpointHandler()) as handler:
                named = handler.restore(folder / "state", args=ocp.args.StandardRestore(target))
        except Exception as error:
            raise DamagedError(f"not readable ({_short_reason(error)})") from None
        if wrong := [part for name in tensors for part in differing(name, named, tensors)]:
            raise DamagedError(f"the bytes of {', '.join(wrong)} do not match their digest")
        return from_named(abstract, named)

    def keeps(self, steps: Sequence[int]) -> list[bool]:
        """Return for each checkpoint whether it is kept."""
        newest = sorted(steps)[-self._keep :]
        return [step in newest or step == self.pinned for step in steps]

    def _rename(self, path: Path, aside: Path) -> None:
        if jax.process_index() == 0:
            path.rename(aside)
        multihost_utils.sync_global_devices(f"set aside {aside.name}")
        self._manager.reload()


class _Kept:
    """The policy that Orbax asks before it deletes a checkpoint."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        del context
        return self._checkpoints.keeps([each.step for each in checkpoints])


def to_named(state: Any) -> dict[str, Any]:
    """Return the leaves of a state by dotted path: a flat dictionary, which Orbax stores as it is."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def from_named(like: Any, named: dict[str, Any]) -> Any:
    """Build a state with the structure of `like` and the leaves `named`."""
    return jax.tree.unflatten(jax.tree.structure(like), [named[name] for name in to_named(like)])


def _short_reason(error: Exception) -> str:
    """Return the first line of a message; of a long one the end, where TensorStore says why."""
    text = first_line(error)
    return text if len(text) <= 120 else "..." + text[-120:]


def _unraisable(usual: Callable[[Any], None], unraisable: Any) -> None:
    """Pass an unraisable exception on, unless it is one of TensorStore's dozens after a failed write."""
    if str(unraisable.exc_value) != "Event loop is closed":
        usual(unraisable)
