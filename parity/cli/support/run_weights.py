"""The model that a command runs: a checkpoint, or a training run, whether that has ended or not."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.reading import EXIF, Exif, shown_as
from vit_config import CheckpointError, ConfigError, MissingFileError
from vit_config.terminal import complain
from vit_train.frameworks import Framework, default_framework

if TYPE_CHECKING:
    from parity.porting.models.loaded import Loaded


def is_run(source: str | Path) -> bool:
    """Return whether a path is the folder of a training run."""
    from vit_train.folder.manifest import FILE

    return (Path(source) / FILE).is_file()


@contextmanager
def weights_of(source: str, step: int | None = None) -> Iterator[str]:
    """Yield the weights file of a run folder, or `source` itself if it is anything else.

    If the run has none yet, or a step is given, the file is made from a checkpoint, which is named on
    stderr, and removed afterwards.

    Args:
        step: the checkpoint of the run to take.

    Raises:
        ConfigError: a step is given, but no run.
        MissingFileError, CheckpointError: see `parity.runs.weights.write_run_weights`.
    """
    if not is_run(source):  # needs no package of training
        if step is not None:
            raise ConfigError(f"--step {step}: {source} is no folder of a training run; leave it out")
        yield source
        return
    from parity.porting.models.trained import WEIGHTS
    from parity.runs.weights import write_run_weights

    exported = Path(source) / WEIGHTS
    if step is None and exported.is_file():
        yield str(exported)
        return
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder) / WEIGHTS
        taken = write_run_weights(Path(source), path, step)
        for note in taken.notes:
            complain(note)
        complain(f"{source}: the checkpoint of step {taken.step} ({taken.why})")
        yield str(path)


@dataclass(frozen=True)
class OfModel:
    """The flags by which commands are told which model to run on images."""

    source: Annotated[str, tyro.conf.Positional, shown_as("RUN|CHECKPOINT")]
    """Folder of a training run, or a checkpoint of any dialect: a file, a folder, a name on the Hub."""
    step: Annotated[int | None, shown_as("N", "the weights it ended with, else the newest or best")] = (
        field(default=None, kw_only=True)
    )
    """Step of the training run's checkpoint."""
    framework: Annotated[Framework | None, shown_as("{jax,torch}", "jax where it is installed")] = field(
        default=None, kw_only=True
    )
    """Framework of the twin to run."""
    exif: Annotated[Exif | None, EXIF] = field(default=None, kw_only=True)
    """Turn photos as their camera noted, or take them as their pixels lie."""

    def load(self, **options: Any) -> Loaded:
        """Return the model; `options` are those of `parity.load`."""
        from parity.porting.models.files import load

        with weights_of(self.source, self.step) as weights:
            loaded = load(weights, framework=self.framework or default_framework(), **options)
        return loaded.seeing(self.exif)


_URL = re.compile(r"[a-z0-9]+://")


def runs_here(words: Sequence[str]) -> list[str]:
    """Return a command line with the local folder in place of each run's URL.

    Raises:
        ConfigError: a package that the URL's scheme needs is not installed.
        CheckpointError: the storage cannot be read.
        MissingFileError: there is no run.
    """
    return [_folder(word) if _URL.match(word) else word for word in words]


def _folder(url: str) -> str:
    """Return the local folder, with all complete files copied to it, unless the run goes on in it."""
    from vit_train.folder.manifest import FILE, locked
    from vit_train.folder.mirror import make_mirror

    mirror = make_mirror(url)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(mirror.lock))
        except CheckpointError:
            return str(mirror.folder)
        mirror.fetch()
    if not (mirror.folder / FILE).is_file():
        raise MissingFileError(f"{url}: no {FILE} there; give the folder of a training run")
    return str(mirror.folder)
