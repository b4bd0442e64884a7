"""A run from its first step to its last, in either framework: folder, log, evaluation and end."""

from __future__ import annotations

from collections.abc import Set
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from vit_config import CheckpointError, Preprocess, TrainingError
from vit_config.scoring import Score
from vit_config.screen import screen
from vit_train.data.dataset import ImageDataset
from vit_train.display.profiling import FOLDER, Profile
from vit_train.display.progress import TrainingBar
from vit_train.folder.about import RunAbout
from vit_train.folder.best import Best, best_so_far
from vit_train.folder.checkpoints import CheckpointStore, Stored
from vit_train.folder.log import UNLOGGED, NoLog, RunLog, read_log, taken_again, unlogged
from vit_train.folder.manifest import as_begun, claim, locked, make_manifest
from vit_train.folder.saving import Due
from vit_train.frameworks import NAMES, Framework
from vit_train.hosts import Hosts
from vit_train.loop import AfterEvaluation, Hooks, evaluate, run_steps
from vit_train.stopping import Stopping, stop_signals
from vit_train.task import Task, make_task
from vit_train.trainer import OnDevices, Params, Trainer

__all__ = ["CHECKPOINTS", "RunResult", "check_framework", "conduct", "make_task"]

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints in that of a run."""
DAMAGED_SHOWN = 10
"""Number of damaged images that are named at the terminal; the log names all of them."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    params: dict[str, np.ndarray]
    """Parameters by common name, or their average if the recipe keeps one, in the layout of the
    framework that trained them."""
    preprocess: Preprocess
    dataset: ImageDataset
    step: int
    """Updates done."""
    test: Score | None
    """Score on the whole test set; None for a run that has not reached its end."""
    provenance: tuple[Any, ...] = ()
    """Origin of the weights that the run began with; JSON values."""
    best: Best | None = None
    """The evaluation that chose these parameters; None if they are those of the last step."""


def conduct(
    task: Task,
    trainer: Trainer[OnDevices, Stored, Params],
    run_dir: Path,
    console: Console,
    home: str | None = None,
) -> RunResult:
    """Train in `run_dir`, or continue there.

    Nothing is printed before the folder proves to be this run's: a refusal is one line.

    SIGINT or SIGTERM is answered at once and ends the run within two steps, with a checkpoint; a second
    one ends it as soon as no checkpoint is being written.

    Args:
        home: the folder's name at the terminal; None leaves that line out.

    Raises:
        CheckpointError: the folder holds another run, or cannot be written.
        TrainingError: the loss is not finite.
    """
    job, program, hosts = task.job, trainer.program, trainer.hosts
    console = console if hosts.leads else screen(quiet=True)
    with ExitStack() as stack:
        computing = trainer.framework, task.start, task.teacher, trainer.how["devices"]
        made = make_manifest(job, task.dataset.fingerprint, *computing)
        manifest, renamed = as_begun(run_dir, made)
        changes: list[str] = []
        if hosts.leads:
            stack.enter_context(locked(run_dir))
            check_framework(run_dir, trainer.framework)
            changes = claim(run_dir, manifest)
            RunAbout(task.preprocess, task.start.provenance if task.start else ()).save(run_dir)
        if home is not None:
            console.print(f"run folder {home}", highlight=False, soft_wrap=True, markup=False)
        task.note_resizing(console)
        for line in (*renamed, *task.notes, *trainer.notes):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        for change in changes:
            console.print(f"{change}: no longer bit for bit", markup=False)
        checkpoints = stack.enter_context(
            trainer.open_checkpoints(run_dir / CHECKPOINTS, manifest, task.keep)
        )
        start, state = _start(task, trainer, checkpoints, console)
        if hosts.leads and (note := taken_again(run_dir, start)):
            console.print(note, highlight=False, soft_wrap=True)
        log = stack.enter_context(RunLog(run_dir, start_step=start) if hosts.leads else NoLog())
        best = best_so_far(job, read_log(run_dir) if hosts.leads else ())
        if best is not None:
            best.take(hosts.of_leader(best.numbers))
        checkpoints.pinned = best.step if best else None
        over = best is not None and best.is_enough  # it was enough when this run last ended
        how = {"framework": trainer.framework, **manifest.environment, **trainer.how}
        log.write("start", start, run_id=manifest.run_id, **how)
        batches = stack.enter_context(closing(task.batches(start, hosts.rows)))
        bar = TrainingBar(
            console, start_step=start, total_steps=task.total_steps, steps_per_epoch=task.steps_per_epoch
        )
        profile = stack.enter_context(Profile(task.profile, trainer.trace, run_dir / FOLDER))
        agreed = hosts.should_stop
        due = Due(task.save_every, partial(_of_leader, hosts) if agreed else None)
        logged = set() if agreed else {(event["kind"], event["step"]) for event in read_log(run_dir)}
        hooks = partial(_hooks, task, trainer, log, bar, checkpoints, best, profile, due, logged)
        tell = (bar.note, lambda: checkpoints.writing, bar.leave, agreed)
        try:
            with stop_signals(start, task.total_steps, *tell) as stopping, bar:
                step, state = run_steps(
                    program,
                    job.recipe,
                    state,
                    batches,
                    hooks(stopping),
                    start_step=start,
                    steps_per_epoch=task.steps_per_epoch,
                    stop_after=start if over else task.stop_after,
                    unlogged=unlogged(run_dir, start) if hosts.leads else (),
                    evaluate_first=("train", start) in logged,
                )
                if step < task.total_steps or stopping.should_stop:
                    checkpoints.wait()
        except TrainingError as error:
            raise TrainingError(f"{error}; the checkpoints before it are in {run_dir}") from None
        is_enough = best is not None and best.is_enough
        test, over = None, (step == task.total_steps or is_enough) and not stopping.should_stop
        if over and best is not None:
            state = _restore_best(best, step, trainer, checkpoints, state, console)
        if over:
            test = evaluate(program, state.averaged, task.eval_batches(task.dataset.test, hosts.rows))
            log.write("test", step, loss=test.loss, accuracy=test.accuracy, count=test.count)
        if damaged := task.damaged:
            log.write("damaged", step, count=len(damaged), records=damaged)
            console.print(f"damaged images that were replaced: {len(damaged)}", highlight=False)
            for line in damaged[:DAMAGED_SHOWN]:
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        if task.profile:
            note = f"in {run_dir / FOLDER}" if profile.written else "none: the run has no such steps"
            console.print(f"trace {note}", markup=False, highlight=False, soft_wrap=True)
        params = trainer.export(program.fetch(state.averaged))
    begun = task.start.provenance if task.start else ()
    chosen = best if over else None
    return RunResult(params, task.preprocess, task.dataset, step, test, begun, chosen)


def check_framework(run_dir: Path, here: Framework) -> None:
    """Refuse a folder with checkpoints of the other framework.

    Raises:
        CheckpointError: the message names both frameworks, and how to convert the run.
    """
    entries = list((run_dir / CHECKPOINTS).glob("*"))
    there: dict[Framework, bool] = {
        "jax": any(path.is_dir() and path.name.isdecimal() for path in entries),
        "torch": any(path.suffix == ".pt" and path.stem.isdecimal() for path in entries),
    }
    for framework, present in there.items():
        if present and framework != here:
            raise CheckpointError(
                f"{run_dir}: holds a run of {NAMES[framework]}, which {NAMES[here]} cannot continue as"
                " it is; carry it over with `parity convert-run`, or choose another --run-dir"
            )


def _restore_best(
    best: Best,
    step: int,
    trainer: Trainer[OnDevices, Stored, Params],
    checkpoints: CheckpointStore[Stored],
    state: OnDevices,
    console: Console,
) -> OnDevices:
    """Restore the state that the validation images chose, at the end of a run."""
    if best.step is None:
        raise TrainingError(
            f"no evaluation had a {best.by} to choose by; lower learning_rate, or leave --best out"
        )
    why = f", after {best.since} evaluations without a better one" if best.is_enough else ""
    console.print(
        f"validation {best.by} was best, {best.value:.4f}, after step {best.step} of {step}{why}",
        highlight=False,
    )
    if best.step == step:
        return state
    program = trainer.program
    return program.place_state(checkpoints.restore_pinned(program.abstract_state))


def _hooks(
    task: Task,
    trainer: Trainer[OnDevices, Stored, Params],
    log: RunLog | NoLog,
    bar: TrainingBar,
    checkpoints: CheckpointStore[Stored],
    best: Best | None,
    profile: Profile,
    due: Due,
    logged: Set[tuple[str, int]],
    stopping: Stopping,
) -> Hooks[Stored, Params]:
    recipe = task.job.recipe
    watched = {"validation": task.validation, "test": task.dataset.test if recipe.watch_test else None}

    def on_log(step: int, means: dict[str, float]) -> None:
        log.write("train", step, epoch=step / task.steps_per_epoch, **means)
        bar.update(step, means)

    def on_evaluate(step: int, params: Params) -> AfterEvaluation:
        verdict = AfterEvaluation()
        for name, records in watched.items():
            if records is None or (name == "test" and step == task.total_steps):
                continue  # the test set is read at the end anyway
            if (name, step) in logged:
                continue  # done when the run was told to stop, and left the next
            batches = task.eval_batches(records, trainer.hosts.rows)
            with stopping.between_steps() as left:
                result = evaluate(trainer.program, params, batches, left)
            log.write(name, step, loss=result.loss, accuracy=result.accuracy)
            if name == "validation" and best is not None:
                scores = {"loss": result.loss, "accuracy": result.accuracy}
                verdict = AfterEvaluation(best.note(step, scores), best.is_enough)
                checkpoints.pinned = best.step
            bar.note(
                f"epoch {step // task.steps_per_epoch}  {name} loss {result.loss:.4f}  accuracy"
                f" {result.accuracy:.4f}  ({result.correct}/{result.count})"
                f"{'  best so far' if name == 'validation' and verdict.keep else ''}"
            )
        return verdict

    def on_save(step: int, state: Stored) -> None:
        checkpoints.save(step, state)
        due.saved()

    def keep_unlogged(step: int, metrics: list[dict[str, float]]) -> None:
        log.write(UNLOGGED, step, metrics=metrics)

    teach = task.teach(trainer.make_teacher)
    return Hooks(on_log, on_save, on_evaluate, stopping, teach, profile, due, keep_unlogged, bar.advance)


def _of_leader(hosts: Hosts, late: bool) -> bool:
    return bool(hosts.of_leader(np.array([float(late)]))[0])


def _start(
    task: Task,
    trainer: Trainer[OnDevices, Stored, Params],
    checkpoints: CheckpointStore[Stored],
    console: Console,
) -> tuple[int, OnDevices]:
    """Return the newest undamaged checkpoint, or the initial state, saved if no step is to follow."""
    program = trainer.program
    warn = partial(console.print, markup=False)  # a path may have brackets in it
    step, state = checkpoints.restore_latest(program.abstract_state, warn=warn)
    if step is not None and state is not None:
        over = step >= task.total_steps
        console.print(f"all {step} steps were done" if over else f"continuing from step {step}")
        return step, program.place_state(state)
    initial = program.initialise()
    if task.start is not None:
        for line in task.start.account:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        stored = trainer.with_arrays(program.fetch(initial), task.start.arrays)
        initial = program.place_state(stored)
    if task.frozen:
        trained = len(task.parameter_names) - len(task.frozen)
        console.print(f"frozen: {len(task.frozen)} tensors; {trained} are trained", highlight=False)
        drawn = sorted(each for each in task.frozen if task.start and each not in task.start.arrays)
        if drawn:
            some = ", ".join(drawn[:3]) + (", ..." if len(drawn) > 3 else "")
            why = (
                "frozen as drawn, so that the rest learns to suit random numbers; leave out of --freeze"
            )
            console.print(f"warning: {some}: {why}", highlight=False, soft_wrap=True)
    if task.stop_after == 0:
        checkpoints.save(0, program.store(initial))
    return 0, initial
