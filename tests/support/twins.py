"""The twins of a check, made once for all the checks of a test file that leave them unchanged."""

from functools import cache

import pytest

from parity.twins import run_jax


@pytest.fixture(scope="module")
def one_jax_twin():
    """The JAX twin of each schema is compiled once; for tests that change the other twin only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_jax, "JaxTwin", cache(run_jax.JaxTwin))
        yield
