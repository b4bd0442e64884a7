"""The description of a checkpoint's tensors, written at the same time as the tensors.

Each process describes the tensors it writes: the first in the file that Orbax names ``metadata``,
every other in a file of its own. A description is sealed by a digest of itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.future import CommitFutureAwaitingContractedSignals, Future

from vit_config.files.foreign import LONGEST_JSON, parse_json
from vit_config.files.seal import json_digest
from vit_jax.train.digests import join_descriptions

FILE = "metadata"


class Handler(ocp.JsonCheckpointHandler):
    """Handler that writes a description whose digests are still computed; it reads all processes'
    as one."""

    async def async_save(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, directory: epath.Path, args: Save
    ) -> list[Future]:
        """Wait for the digests while Orbax writes the tensors, which wait for nothing."""

        async def write() -> None:
            part = {**args.head, "tensors": args.tensors()}
            name = FILE if not jax.process_index() else f"{FILE}.{jax.process_index()}"
            (directory / name).write_text(json.dumps({**part, "seal": seal(part)}))

        return [CommitFutureAwaitingContractedSignals(write(), name="description")]

    def restore(self, directory: epath.Path, item: Any = None, args: Any = None) -> dict[str, Any]:
        """Read the description, with the parts of every process.

        Raises:
            ValueError: the description was changed after writing.
        """
        del item, args
        first = _read(directory / FILE)
        others = [_read(directory / f"{FILE}.{i}") for i in range(1, first.get("processes", 1))]
        if any((other["step"], other["run_id"]) != (first["step"], first["run_id"]) for other in others):
            raise ValueError("its descriptions are of several checkpoints")
        return {**first, "tensors": join_descriptions(part["tensors"] for part in (first, *others))}


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclass
class Save(ocp.args.CheckpointArgs):
    """Orbax's arguments for saving a description."""

    head: Mapping[str, Any]
    """Step, run and number of processes of the checkpoint."""
    tensors: Callable[[], Mapping[str, list[Any]]]
    """Waits for the digests; see `vit_jax.train.digests.describe`."""


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclass
class Restore(ocp.args.CheckpointArgs):
    """Orbax's arguments for reading a description: none."""


def seal(description: Mapping[str, Any]) -> str:
    """Compute the digest of a description without its seal."""
    return json_digest({key: value for key, value in description.items() if key != "seal"})


def _read(path: epath.Path) -> dict[str, Any]:
    if path.stat().length > LONGEST_JSON:
        raise ValueError(f"it has more than {LONGEST_JSON} bytes")
    part = parse_json(path.read_text())
    if not isinstance(part, dict) or part.get("seal") != seal(part):
        raise ValueError("it was changed after writing")
    return part
