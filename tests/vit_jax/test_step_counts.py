"""A budget that holds on a noisy machine: no compiled step consists of more than is written down."""

from pathlib import Path

import pytest

from evidence.bench.counts import compile_step, count_operations
from tests.support.counts_lock import Lock, too_many
from tests.support.share import rarely
from tests.support.tiny import variant
from vit_config import Recipe

KINDS = ("plain", "swiglu", "res_post", "parallel", "branches", "differential", "differential_parallel")
RECIPE = Recipe(optimizer="sgd", momentum=0.0)  # the model's share: Adam is the same for every block


def counts(kind):
    return count_operations(compile_step(variant(kind).replace(depth=2), RECIPE, 2))


LOCK = Lock(
    Path(__file__).parent / "step_counts.json", "cpu", ("jaxlib",), "tools/step_counts.py", KINDS, counts
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rarely(KINDS, ("plain",)))
def test_a_compiled_step_consists_of_no_more_than_is_written_down(kind):
    LOCK.check(kind)


def test_more_of_anything_is_noticed():
    allowed = {"dot": 3, "bytes": 10}
    assert not too_many({"dot": 3, "bytes": 9}, allowed)
    assert too_many({"dot": 4, "copy": 1, "bytes": 10}, allowed) == {"dot": (4, 3), "copy": (1, 0)}
