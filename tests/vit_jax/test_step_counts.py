"""A budget that holds on a noisy machine: no compiled step consists of more than is written down."""

import json
from pathlib import Path

import jaxlib
import pytest

from parity.twins.bench.counts import compile_step, count_operations
from tests.support.tiny import variant
from vit_config import Recipe

LOCK = Path(__file__).parent / "step_counts.json"
KINDS = ("plain", "swiglu", "res_post", "parallel", "branches", "differential", "differential_parallel")
RECIPE = Recipe(optimizer="sgd", momentum=0.0)  # the model's share: Adam is the same for every block


def counts(kind):
    return count_operations(compile_step(variant(kind).replace(depth=2), RECIPE, 2))


def too_many(found, allowed):
    """What there is more of than allowed: name -> (found, allowed)."""
    return {name: (n, allowed.get(name, 0)) for name, n in found.items() if n > allowed.get(name, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_step_consists_of_no_more_than_is_written_down(kind):
    lock = json.loads(LOCK.read_text())
    hint = f'; if it must be so, run tools/step_counts.py --why "REASON" (the last: {lock["why"]})'
    assert lock["jaxlib"] == jaxlib.__version__, "another compiler counts otherwise" + hint
    more = too_many(counts(kind), lock["steps"][kind])
    assert not more, f"{kind}: {more}{hint}"


def test_more_of_anything_is_noticed():
    allowed = {"dot": 3, "bytes": 10}
    assert not too_many({"dot": 3, "bytes": 9}, allowed)
    assert too_many({"dot": 4, "copy": 1, "bytes": 10}, allowed) == {"dot": (4, 3), "copy": (1, 0)}
