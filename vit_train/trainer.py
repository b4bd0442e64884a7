"""What one framework brings to a run: the interface between the shared loop and a twin's trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from vit_config import Weights
from vit_train.distilling import Teacher
from vit_train.frameworks import Framework
from vit_train.hosts import ALONE, Hosts
from vit_train.manifest import Manifest

Params = TypeVar("Params", contravariant=True)
"""Parameters by common name, on the devices."""
Params_co = TypeVar("Params_co", covariant=True)
Stored = TypeVar("Stored")
"""A training state on the host, as checkpoints keep it."""


class State(Protocol[Params_co]):
    """All that changes from step to step, on the devices."""

    @property
    def averaged(self) -> Params_co:
        """What is evaluated: the average of the parameters, or the parameters where none is kept."""
        ...


OnDevices = TypeVar("OnDevices", bound=State[Any])


class Program(Protocol[OnDevices, Stored, Params]):
    """The functions of one training run, compiled for some devices.

    A batch is a mapping of numpy arrays, ``image`` (B, H, W, C) and ``label`` (B,), until `place_batch`
    gives it the framework's own form.
    """

    @property
    def initialise(self) -> Callable[[], OnDevices]:
        """The state before the first update."""
        ...

    @property
    def abstract_state(self) -> Stored:
        """Shapes and types of the state, without values."""
        ...

    @property
    def place_state(self) -> Callable[[Stored], OnDevices]:
        """A state of the host, copied to the devices."""
        ...

    @property
    def place_batch(self) -> Callable[[Mapping[str, Any]], Any]:
        """A batch of numpy arrays, copied to the devices."""
        ...

    @property
    def train_step(self) -> Callable[[OnDevices, Any], tuple[OnDevices, Any]]:
        """``(state, batch) -> (state, metrics)``; the state passed in is used up.

        Metrics are scalars on the devices: loss, accuracy, grad_norm and learning_rate.
        """
        ...

    def fence(self, metrics: Any, /) -> Callable[[], object]:
        """Given the metrics of the step that was handed to the devices last: waits until they have
        computed it."""
        ...

    @property
    def eval_step(self) -> Callable[[Params, Any], Any]:
        """``(parameters, padded batch) -> sums`` of loss, right answers and images."""
        ...

    @property
    def fetch(self) -> Callable[[Any], Any]:
        """A state as `Stored`; metrics or parameters as numpy arrays of their own memory."""
        ...

    @property
    def store(self) -> Callable[[OnDevices], Stored]:
        """A state as checkpoints take it: whole, or of several hosts each its part."""
        ...


class Checkpoints(Protocol[Stored]):
    """The checkpoints of one run: the newest, and one that is kept however old it is."""

    pinned: int | None
    """The step of that one."""

    @property
    def writing(self) -> bool:
        """Whether one is being written; to be asked by any thread."""
        ...

    def wait(self) -> None:
        """Until everything is on the disk."""
        ...

    def save(self, step: int, state: Stored) -> None:
        """Write a state, which nobody may change until it is written."""
        ...

    def restore_latest(
        self, abstract: Stored, *, warn: Callable[[str], None]
    ) -> tuple[int, Stored] | tuple[None, None]:
        """The newest checkpoint that is whole, as (step, state); (None, None) where there is none."""
        ...

    def restore_pinned(self, abstract: Stored) -> Stored:
        """The state of the pinned step.

        Raises:
            CheckpointError: it is gone, or not whole.
        """
        ...


@dataclass(frozen=True)
class Trainer(Generic[OnDevices, Stored, Params]):
    """One framework's part in a run; made by `vit_jax.train.run` and `vit_torch.train.run`."""

    framework: Framework
    program: Program[OnDevices, Stored, Params]
    with_arrays: Callable[[Stored, Mapping[str, np.ndarray]], Stored]
    """A state before the first update with other parameters, by common name in PyTorch's layout."""
    open_checkpoints: Callable[[Path, Manifest, int], AbstractContextManager[Checkpoints[Stored]]]
    """Given their folder, the run they belong to, and how many of the newest are kept."""
    trace: Callable[[Path], AbstractContextManager[None]]
    """The framework's profiler, for the duration; writes into the folder it is given."""
    export: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    """Parameters of a run as a model has them: adapters are merged into weights."""
    make_teacher: Callable[[Weights], Teacher]
    """A trained model as the function from normalised images to logits."""
    how: Mapping[str, Any]
    """What the log says of devices."""
    hosts: Hosts = ALONE
    """This process's part, where several train together."""
    notes: tuple[str, ...] = ()
    """What the user is told before the first step, a sentence each."""
