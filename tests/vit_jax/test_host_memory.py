"""A program that trains on a CPU maps no memory anew for each step."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from vit_jax import host_memory

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"

STEPS = """
import resource, sys
from vit_jax.host_memory import keep_freed_memory
kept = sys.argv[1] == 'kept' and keep_freed_memory()
import jax, jax.numpy as jnp
# 48 MiB of temporaries, above every size that glibc keeps by itself
f = jax.jit(lambda x: jnp.outer(x, x) @ x)
x = jnp.arange(3547, dtype=jnp.float32)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    f(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, sum(faults() > 10_000 for _ in range(60)))
"""


def steps_that_map_memory(how: str) -> tuple[bool, int]:
    """Whether memory is kept, and how many of 60 steps touch new pages."""
    program = [sys.executable, "-c", STEPS, how]
    words = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    return words[0] == "True", int(words[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
def test_pages_of_a_step_are_there_for_the_next_one():
    retained, mapping = steps_that_map_memory("kept")
    assert retained
    assert mapping < 20  # a few at first, until small blocks no longer stand in the large one's way
    retained, mapping = steps_that_map_memory("as it is")
    assert not retained
    if "[always]" not in Path(HUGE_PAGES).read_text():
        assert mapping > 40


@pytest.mark.parametrize(("platforms", "alone"), [("cpu", True), ("tpu,cpu", False), ("cuda", False)])
def test_hosts_of_accelerators_are_left_alone(monkeypatch, platforms, alone):
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert host_memory._cpu_alone() is alone
