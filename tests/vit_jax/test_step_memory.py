"""What a training step on a CPU keeps of each block for the backward pass, in bytes."""

import pytest

from evidence.bench.counts import compile_step
from tests.support.tiny import variant
from vit_config import Recipe

BATCH = 1009  # so many that parameters and their gradients count for nothing
RECIPE = Recipe(optimizer="sgd", momentum=0.0)


@pytest.mark.slow
def test_a_block_keeps_what_its_products_read_and_a_copy_of_what_they_wrote():
    """docs/performance.md has this sum for ViT-Ti."""
    cfg = variant("plain")
    N, D, M, h = cfg.num_patches + cfg.num_prefix_tokens, cfg.hidden_size, cfg.mlp_dim, cfg.num_heads
    numbers = (
        2 * (2 * D + 1)  # two norms: normalised; scaled and shifted; 1 / s
        + 3 * D  # q, k, v
        + h * (N + 2)  # exp(logits), their sum and its reciprocal
        + D  # the heads' outputs
        + 2 * M  # before GELU and after it
    )
    few, many = (
        compile_step(cfg.replace(depth=depth), RECIPE, BATCH).memory_analysis().temp_size_in_bytes
        for depth in (2, 4)
    )
    assert (many - few) / 2 == pytest.approx(4 * BATCH * N * numbers, rel=1e-3)
