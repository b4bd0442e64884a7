"""The compiled steps of training runs, made once for all runs of a test file that are of one job."""

from functools import lru_cache

import pytest

import vit_jax.train.run as run_room
from vit_jax.train.pmap import make_pmap_program
from vit_jax.train.spread import make_program


@pytest.fixture(scope="module", autouse=True)
def each_program_once():
    """Runs of the same job share their step: most of their time is compiling. Devices are tuples."""
    with pytest.MonkeyPatch.context() as patch:
        for make in (make_program, make_pmap_program):
            patch.setattr(run_room, make.__name__, lru_cache(make))
        yield
