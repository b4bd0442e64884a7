"""A sample of the pairs that must be equal; `python -m evidence.clean_pairs` tries all of them."""

import jax
import pytest

from evidence.clean_pairs import as_torchvision, clip, in_flax, in_jax, in_torch, weights
from parity.verifier.locate import compare_programs
from parity.verifier.programs.sides import record

WEIGHTS = weights.draw()


@pytest.fixture(scope="module")
def reference():
    return record(in_torch.multihead(WEIGHTS), "A")


@pytest.fixture(scope="module")
def openai():
    return record(clip.openai(clip.draw()), "A")


STYLES = {
    each.__name__: each
    for each in (
        as_torchvision.torchvision, in_torch.heads_inside, in_torch.mapped, in_jax.mapped,
        in_jax.looped, in_jax.einsums, in_jax.patches, in_flax.linen_scan, in_flax.nnx_scan,
    )
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_another_style_is_equal(reference, style):
    comparison = compare_programs(reference, record(STYLES[style](WEIGHTS), "B"))
    assert comparison.verdict == "EQUAL"
    assert not comparison.notes
    assert comparison.error < 1e-14


@pytest.mark.parametrize("style", ["CLIP, open_clip", "CLIP, split in_proj", "CLIP, Linen"])
def test_a_tower_of_clip_is_equal(openai, style):
    comparison = compare_programs(openai, record((clip.TORCH | clip.JAX)[style](clip.draw()), "B"))
    assert (comparison.verdict, comparison.notes) == ("EQUAL", ())
    assert comparison.error < 1e-14


def test_weights_that_one_side_packs_in_a_smaller_type_are_equal():
    function, (state, x) = in_torch.functional(WEIGHTS)
    a = record((function, ({n: each.bfloat16() for n, each in state.items()}, x)), "A")
    module, variables, images = in_flax.linen_model(WEIGHTS)
    comparison = compare_programs(a, record((module, variables, images), "B"))
    assert comparison.verdict == "EQUAL"
    assert "params.layer_1.attn.query.kernel" in comparison.rounded
    changed = jax.tree.map(lambda each: each, variables)
    kernel = changed["params"]["layer_1"]["fc1"]["kernel"]
    changed["params"]["layer_1"]["fc1"]["kernel"] = 1.02 * kernel
    assert compare_programs(a, record((module, changed, images), "B")).verdict == "DIFFERENT"
