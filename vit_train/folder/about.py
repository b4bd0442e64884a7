"""The facts of a run's weights file besides its parameters, kept beside the checkpoints from the
start, so that weights of an unfinished run can be used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit_config import CheckpointError, Preprocess
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.weights_file import write_atomically

FILE = "about.json"


@dataclass(frozen=True)
class RunAbout:
    """How to prepare images for the model, and the origin of the weights that the run began with."""

    preprocess: Preprocess
    provenance: Sequence[Any] = ()
    """JSON values, the oldest file first."""

    def save(self, run_dir: Path) -> None:
        """Write these facts into the folder of a run."""
        content = {
            "preprocess": json.loads(self.preprocess.to_json()),
            "provenance": list(self.provenance),
        }
        write_atomically(run_dir / FILE, json.dumps(content, indent=1).encode())

    @classmethod
    def load(cls, run_dir: Path) -> RunAbout | None:
        """Read these facts from the folder of a run; None for a run older than this file.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = run_dir / FILE
        if not path.is_file():
            return None
        try:
            content = parse_json(read_text(path))
            preprocess = Preprocess.from_json(json.dumps(content["preprocess"]))
            return cls(preprocess, tuple(content["provenance"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path}: is damaged ({error}); delete it, and go on with the run by the command that"
                " began it, which writes it anew"
            ) from None
