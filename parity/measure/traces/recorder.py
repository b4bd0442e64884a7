"""Recording somebody's own program, without editing its model.

with parity.record("a.trace", model, optimizer=optimizer) as trace:
    for images, labels in batches:
        with trace.step(images=images, labels=labels):
            loss = criterion(model(images), labels)
            trace.log("loss", loss)
            loss.backward()
            optimizer.step()
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from parity.measure.site import STAGES, Site, Stage
from parity.measure.traces.format import Program
from parity.measure.traces.record_arrays import OF_RATE, PlainArrays
from parity.measure.traces.sample import Sample
from parity.measure.traces.watching import facts_of, kind_of
from parity.measure.traces.writer import Writer
from vit_config import ConfigError

OPTIMIZER = "(optimizer)"
"""Path under which the facts of an optimiser are kept."""


class Recorder:
    """A recording in progress; make one with `record`."""

    def __init__(self, writer: Writer, framework: PlainArrays, steps: Collection[int] | None) -> None:
        self._writer = writer
        self._framework = framework
        self._steps = steps
        self._stack = ExitStack()
        self._step = -1
        self._watching = False
        self._in_step = False
        self._running = False
        self._logged: set[Stage] = set()
        self.has_batch = False
        """Whether the running step was given its batch."""

    def __enter__(self) -> Self:
        self._stack.enter_context(self._framework.watch(self))
        self._watching = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching = False
        for path, module in self._framework.modules():
            self.describe_module(path, module)  # those that were never called
        self._stack.__exit__(kind, error, trace)
        # the record up to a crash is what the user wants to see
        self._writer.close(f"{kind.__name__}: {error}" if kind else None)

    @contextmanager
    def step(self, **batch: Any) -> Iterator[None]:
        """Record one training step, or one forward pass; steps are counted from 0.

        Args:
            batch: inputs of the step, by name.

        Raises:
            ConfigError: within another step, or outside of the ``with`` block of `record`.
        """
        if self._in_step or not self._watching:
            where = "within another step" if self._in_step else "outside of `with parity.record(...):`"
            raise ConfigError(f"a step was begun {where}; begin one after the other, inside of it")
        self._in_step = True
        self._step += 1
        self._logged.clear()
        self.has_batch = bool(batch)
        self._running = self._steps is None or self._step in self._steps
        try:
            if self._running:
                self._framework.begin_step(self)
                for name, value in batch.items():
                    self.log("batch", value, path=name)
            yield
            if self._running:
                self._framework.end_step(self)
                self._writer.end_step()
        except BaseException:
            if self._running:
                self._framework.abandon_step(self)
                with suppress(Exception):  # the exception that ended the step is raised
                    self._writer.end_step()
            raise
        finally:
            self._running = self._in_step = False

    def log(self, stage: Stage, value: Any, *, path: str = "", port: str = "") -> None:
        """Record a value of the running step: an array, a number, or a tree of them.

        Args:
            stage: one of `parity.measure.site.STAGES`.
            path: name of the value; names within a tree are appended to it.

        Raises:
            ConfigError: no such stage, no step is running, or a type that a trace cannot hold.
            InputError: not a tree of arrays.
        """
        if stage not in STAGES:
            raise ConfigError(f"unknown stage {stage!r}; the stages are {', '.join(STAGES)}")
        if not self._in_step:
            raise ConfigError(f"{stage}: logged outside a step; use `with trace.step():`")
        if not self._running:
            return
        self._logged.add(stage)
        for name, kind, array in self._framework.named(stage, value):
            if kind == OF_RATE:  # optax keeps it in its state
                if "learning rate" not in self._logged:
                    self._writer.add(Site(self._step, "learning rate", path), array)
                continue
            self.add(stage, ".".join(part for part in (path, name) if part), kind or port, array)

    def logged(self, stage: Stage) -> bool:
        """Return whether a value of that stage was recorded in this step."""
        return stage in self._logged

    # Methods for the frameworks' own modules.

    def add(self, stage: Stage, path: str, port: str, array: np.ndarray | Sample) -> None:
        """Record an array of the running step, copied unless it is owned."""
        self._logged.add(stage)
        self._writer.add(Site(self._step, stage, path, port), array)

    def describe_module(self, path: str, module: Any) -> None:
        """Describe a module, once."""
        if not self._writer.described(path):
            self._writer.module(path, kind_of(module), facts_of(self._framework.facts(module)))

    def describe(self, path: str, value: Any, facts: Mapping[str, Any]) -> None:
        """Describe something that is not a module."""
        self._writer.module(path, kind_of(value), facts_of(dict(facts)))

    @property
    def total_bytes(self) -> int:
        """Bytes of the tensors that were recorded so far, of equal ones only one."""
        return self._writer.total_bytes

    @property
    def keep(self) -> int | None:
        """Largest number of elements kept of one tensor; None keeps everything."""
        return self._writer.keep

    @property
    def running(self) -> bool:
        """Whether a recorded step is running."""
        return self._running


def record(
    path: str | Path,
    model: Any = None,
    *,
    optimizer: Any = None,
    program: Callable[[], Any] | str | None = None,
    steps: Collection[int] | None = None,
    keep: int | None = None,
    force: bool = False,
) -> Recorder:
    """Start recording a program; leaving the ``with`` block ends the recording.

    Recorded without further help: of a PyTorch model, what it returns, the parameters and their
    gradients; with its `optimizer`, the clipped gradients, learning rate, moments and updated
    parameters. Of an NNX or Linen model, what it returns, inside compiled code too; with an
    `nnx.Optimizer`, parameters, moments and the gradients that it is given. Of either, what active
    dropout is given and returns. Everything else is passed to `Recorder.log`.

    Args:
        path: the folder to write, by convention ``NAME.trace``.
        model: a torch.nn.Module, an nnx.Module or a linen.Module; None records only what is logged.
        optimizer: a torch.optim.Optimizer or an nnx.Optimizer.
        program: function that returns the model and its inputs, or ``FILE.py:FUNCTION``, as for
            `parity diff`. The recording keeps where it is, so that a step can be run again.
        steps: which steps to record; None records all.
        keep: largest number of elements kept of one tensor, every n-th along each axis. None keeps
            everything.
        force: replace an existing trace.

    Raises:
        ConfigError: a model of no known framework, a `program` that lies in no file or is no function
            of its top level, `keep` is not positive, `steps` are no numbers of
            steps, or there is something at `path` already.
        MissingFileError: the folder to write in does not exist.
    """
    recorded = None if steps is None else _checked(steps)
    framework = _framework(model, optimizer)
    writer = Writer(
        path,
        framework=framework.name,
        versions=framework.versions(),
        precision=framework.precision(),
        program=None if program is None else _place_of(program),
        keep=keep,
        force=force,
    )
    return Recorder(writer, framework, recorded)


def _place_of(program: Callable[[], Any] | str) -> Program:
    """Return where a program is.

    Raises:
        ConfigError: it lies in no file, or is no function of its top level.
    """
    if isinstance(program, str):
        where, _, name = program.rpartition(":")
    else:
        name, code = getattr(program, "__qualname__", str(program)), getattr(program, "__code__", None)
        where = code.co_filename if code is not None else ""
    path = Path(where).absolute()
    if not name.isidentifier() or path.suffix != ".py" or not path.is_file():
        raise ConfigError(
            f"program = {program if isinstance(program, str) else name}: expected a function at the top"
            " level of a Python file, or FILE.py:FUNCTION"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Program(file=str(path), name=name, digest=digest)


def _checked(steps: Any) -> frozenset[int]:
    """Return numbers of steps as a set.

    Raises:
        ConfigError: they are none.
    """
    given = None if isinstance(steps, (str, bytes)) or not isinstance(steps, Iterable) else [*steps]
    if given is None or not all(isinstance(each, (int, np.integer)) and each >= 0 for each in given):
        raise ConfigError(
            f"steps = {steps!r}: must be several numbers of steps, counted from 0, such as [0, 100] or"
            " range(3)"
        )
    return frozenset(map(int, given))


def _framework(model: Any, optimizer: Any) -> PlainArrays:
    if model is None:
        return PlainArrays()
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "torch" in roots:
        from parity.measure.traces.record_torch import Torch

        return Torch(model, optimizer)
    if "flax" in roots:
        from parity.measure.traces.record_jax import Jax

        return Jax(model, optimizer)
    if isinstance(model, str | Path):
        raise ConfigError(f"{model}: a path stands first, parity.record(path, model)")
    raise ConfigError(
        f"{kind_of(model)} is neither a torch.nn.Module nor a module of Flax; leave `model` out and log"
        " its arrays by name"
    )
