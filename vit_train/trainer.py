"""The interface between the shared loop and one framework's trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from vit_config import Weights
from vit_train.distilling import Teacher
from vit_train.folder.checkpoints import CheckpointStore, Stored
from vit_train.folder.manifest import Manifest
from vit_train.frameworks import Framework
from vit_train.hosts import ALONE, Hosts

Params = TypeVar("Params", contravariant=True)
"""Parameters by common name, on the devices."""
Params_co = TypeVar("Params_co", covariant=True)


class State(Protocol[Params_co]):
    """Everything that a training step changes, on the devices."""

    @property
    def averaged(self) -> Params_co:
        """The parameters to evaluate: their average, or the current ones if no average is kept."""
        ...


OnDevices = TypeVar("OnDevices", bound=State[Any])


class TrainingProgram(Protocol[OnDevices, Stored, Params]):
    """The functions of one training run, compiled for some devices.

    A batch is a mapping of numpy arrays, ``image`` (B, H, W, C) and ``label`` (B,), until `place_batch`
    gives it the framework's own form.
    """

    @property
    def initialise(self) -> Callable[[], OnDevices]:
        """Creates the state before the first update."""
        ...

    @property
    def abstract_state(self) -> Stored:
        """Shapes and types of the state, without values."""
        ...

    @property
    def place_state(self) -> Callable[[Stored], OnDevices]:
        """Copies a state of the host to the devices."""
        ...

    @property
    def place_batch(self) -> Callable[[Mapping[str, Any]], Any]:
        """Copies a batch of numpy arrays to the devices."""
        ...

    @property
    def train_step(self) -> Callable[[OnDevices, Any], tuple[OnDevices, Any]]:
        """``(state, batch) -> (state, metrics)``; the state passed in is used up.

        Metrics are scalars on the devices: loss, accuracy, grad_norm and learning_rate.
        """
        ...

    def fence(self, metrics: Any, /) -> Callable[[], object]:
        """Return a function that waits until the devices have computed the step with these metrics,
        the last one handed to them."""
        ...

    @property
    def eval_step(self) -> Callable[[Params, Any], Any]:
        """``(parameters, padded batch) -> sums`` of loss, right answers and images."""
        ...

    @property
    def fetch(self) -> Callable[[Any], Any]:
        """Turns a state into `Stored`; metrics or parameters into numpy arrays of their own memory."""
        ...

    @property
    def store(self) -> Callable[[OnDevices], Stored]:
        """Brings a state to the form that checkpoints take: whole, or each host's own part."""
        ...


@dataclass(frozen=True)
class Trainer(Generic[OnDevices, Stored, Params]):
    """One framework's part in a run; made by `vit_jax.train.run` and `vit_torch.train.run`."""

    framework: Framework
    program: TrainingProgram[OnDevices, Stored, Params]
    with_arrays: Callable[[Stored, Mapping[str, np.ndarray]], Stored]
    """Replaces parameters in a state before the first update, by common name in PyTorch's layout."""
    open_checkpoints: Callable[[Path, Manifest, int], AbstractContextManager[CheckpointStore[Stored]]]
    """Given their folder, the run they belong to, and the number of newest ones to keep."""
    trace: Callable[[Path], AbstractContextManager[None]]
    """Runs the framework's profiler for the duration; writes into the given folder."""
    export: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    """Turns a run's parameters into a model's: adapters are merged into weights."""
    make_teacher: Callable[[Weights], Teacher]
    """Makes a trained model's function from normalised images to logits."""
    how: Mapping[str, Any]
    """Description of the devices for the log."""
    hosts: Hosts = ALONE
    """This process's part, if several train together."""
    notes: tuple[str, ...] = ()
    """Notes to the user before the first step, a sentence each."""
