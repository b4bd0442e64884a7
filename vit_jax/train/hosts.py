"""Several processes, on as many hosts, that train as one: JAX's own multi-controller runtime.

Each process runs the same command and sees all devices; the first one is the coordinator. JAX finds out
about TPU pods, SLURM, Open MPI and GKE by itself.
"""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from vit_config import ConfigError
from vit_config.errors import first_line
from vit_train.hosts import ALONE, Hosts

DEAD_AFTER = 60
"""Seconds without a heartbeat after which a process counts as dead, and all others end."""
FETCHED_IN = 3600
"""Seconds that the first process has to fetch a run's folder from object storage."""
ADDRESS = "JAX_COORDINATOR_ADDRESS"
"""JAX's variable with the first process's address, beside JAX_PROCESS_ID and JAX_NUM_PROCESSES."""
SEEN = ".seen"
"""The file by which processes check that they have the same folder."""
MOST_SAID = 1000
"""The most bytes of a sentence that one process sends to all."""


@contextmanager
def join_processes(coordinator: str | None, process: str | None) -> Iterator[bool]:
    """Join the processes of a run, for the duration; call this before anything computes.

    Args:
        coordinator: ``HOST:PORT`` of the first process; or ``auto``, as the cluster or the environment
            (``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES``, ``JAX_PROCESS_ID``) says; None for a
            process alone.
        process: ``I/N``, this one's number, from 0, and how many there are; None as `coordinator` says.

    Yields:
        Whether this is the first process.

    Raises:
        ConfigError: an argument is not of that form, the cluster does not say, or not all
            processes came.
    """
    if coordinator is None:
        if process is not None:
            raise ConfigError(f"--process {process} goes with --coordinator, the first one's HOST:PORT")
        yield True
        return
    given = _arguments(coordinator, process)
    try:
        jax.distributed.initialize(**given, heartbeat_timeout_seconds=DEAD_AFTER)
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise ConfigError(
            f"--coordinator {coordinator}: the processes cannot be joined ({reason}); give --coordinator"
            " HOST:PORT and --process I/N"
        ) from None
    with _interrupts_end_all():
        yield jax.process_index() == 0
    jax.distributed.shutdown()  # after an error the others are not waited for


def _arguments(coordinator: str, process: str | None) -> dict[str, Any]:
    """Return the arguments of `jax.distributed.initialize` that are given; JAX finds the rest."""
    settings = os.environ if coordinator == "auto" else {ADDRESS: coordinator}
    given: dict[str, Any] = {"coordinator_address": settings[ADDRESS]} if ADDRESS in settings else {}
    if not all(re.fullmatch(r".+:\d{1,5}", address) for address in given.values()):
        raise ConfigError(
            f"--coordinator {coordinator}: {settings[ADDRESS]!r} is not a HOST:PORT; give that"
        )
    if process is not None:
        number, _, count = process.partition("/")
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise ConfigError(
                f"--process {process}: give its number, from 0, and how many there are, as 0/2"
            )
        return given | {"process_id": int(number), "num_processes": int(count)}
    for name, key in (("process_id", "JAX_PROCESS_ID"), ("num_processes", "JAX_NUM_PROCESSES")):
        if key in os.environ:
            if not os.environ[key].isdecimal():
                raise ConfigError(f"{key} = {os.environ[key]!r}: give a whole number")
            given[name] = int(os.environ[key])
    return given


def make_hosts(rows: Any) -> Hosts:
    """Describe this process's part in a run, with the rows of a batch that its devices hold."""
    if jax.process_count() == 1:
        return ALONE
    agreed = multihost_utils.reached_preemption_sync_point
    return Hosts(jax.process_index() == 0, rows, agreed, _of_leader)


def _of_leader(numbers: np.ndarray) -> np.ndarray:
    """Return the first process's numbers, sent as bits: JAX would round float64 where it is off."""
    bits = multihost_utils.broadcast_one_to_all(numbers.view(np.uint32))
    return np.asarray(bits, np.uint32).view(np.float64)


def see_same(folder: Path) -> None:
    """Wait until the first process has the folder of a run, and check that all processes have the
    same one: each writes its part of a checkpoint there, and the first puts the parts together.

    Raises:
        ConfigError: some processes have another disk.
    """
    if jax.process_count() == 1:
        return
    known = folder / SEEN
    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        known.write_text(uuid.uuid4().hex)
    # not by a collective, which waits for half a minute only
    ocp.multihost.sync_global_processes("have the folder of the run", timeout=FETCHED_IN)
    text = known.read_text() if known.is_file() else ""
    ours = np.frombuffer(text.encode().ljust(32, b"\0")[:32], np.float64)
    same = _of_leader(ours).tobytes() == ours.tobytes()
    if message := said_by_any(None if same else f"{folder} is not that of the first"):
        raise ConfigError(
            f"{message}; a run of several processes on object storage works in a folder on a disk that"
            " they share: set XDG_CACHE_HOME to one"
        )


def said_by_any(sentence: str | None) -> str | None:
    """Gather the sentences of all processes, all of which call this; None where none has one."""
    if jax.process_count() == 1:
        return sentence
    sent = np.zeros(MOST_SAID, np.uint8)
    words = (sentence or "").encode()[:MOST_SAID]
    sent[: len(words)] = np.frombuffer(words, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(sent), np.uint8)  # (processes, MOST_SAID)
    processes = {bytes(row).rstrip(b"\0").decode(errors="replace"): i for i, row in enumerate(rows)}
    processes.pop("", None)
    return "; ".join(f"process {i}: {words}" for words, i in processes.items()) or None


@contextmanager
def _interrupts_end_all() -> Iterator[None]:
    """Turn SIGINT into SIGTERM, which JAX's runtime notes, tells the others, and agrees on a step."""
    usual = signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
