"""A sample of pairs that must be equal, and of mistakes; `python -m evidence.clean_pairs` tries all."""

from collections import defaultdict

import numpy as np
import pytest

from evidence.clean_pairs import draw, judge, mistakes, outcome
from evidence.clean_pairs.draw import Pair
from evidence.clean_pairs.sizes import LARGE, SIZES
from evidence.clean_pairs.style import Wrong
from evidence.clean_pairs.styles import styles
from evidence.clean_pairs.weights import KINDS

CLEAN = {
    each.name: each
    for each in (
        Pair("timm", "einops, (d h) heads", "mean", "trained"),
        Pair("timm", "lax.fori_loop", "tiny", "trained"),
        Pair("timm", "NNX, a Linear each for q, k, v", "registers", "trained"),
        Pair("timm", "custom_vjp, attention in chunks", "width 8", "outliers"),
        Pair("CLIP, OpenAI", "CLIP, Linen", "tiny", "trained"),
        Pair("SigLIP, timm", "SigLIP, plain function", "width 8", "trained"),
    )
}
FAULTY = {
    each.name: each
    for each in (
        Pair("timm", "plain function", "tiny", "timm", wrong=Wrong("epsilon", 1)),
        Pair("functional torch", "Linen, scan", "tiny", "trained", wrong=Wrong("tanh gelu")),
        Pair("timm", "NNX, packed by hand", "mean", "trained", wrong=Wrong("head order", 0)),
    )
}


@pytest.mark.parametrize("name", CLEAN)
def test_two_styles_are_equal(name):
    result = judge.judged(CLEAN[name])
    assert result.state == "EQUAL", result.report or result.why
    assert result.apart < outcome.CLOSE


@pytest.mark.parametrize("name", FAULTY)
def test_a_mistake_is_caught_placed_and_named(name):
    result = judge.judged(FAULTY[name])
    assert (result.verdict, result.placed, result.named) == ("DIFFERENT", True, True), result.report


def test_every_style_meets_every_kind_of_weights_and_every_size():
    pairs = list(draw.clean())
    assert len(pairs) >= 1500
    assert len({each.name for each in pairs}) == len(pairs)
    assert pairs == list(draw.clean())
    kinds, sizes = defaultdict(set), defaultdict(set)
    for each in pairs:
        assert each.a != each.b
        kinds[each.b].add(each.kind)
        sizes[each.b].add(each.size_name)
    for name, style in styles().items():
        wanted = {
            kind for kind, (_, feature, _) in KINDS.items() if not feature or feature in style.accepts
        }
        assert kinds[name] == wanted, name
        assert sizes[name] == {*SIZES}, name


def test_mistakes_are_those_of_the_table_and_have_lines():
    pairs = list(draw.faulty())
    assert len(pairs) >= 600
    assert {each.wrong.name for each in pairs} <= {*mistakes.FAULTS}
    marked = set()
    for file in mistakes.FOLDER.glob("*.py"):
        marked |= {name for names in mistakes.marks(str(file)).values() for name in names}
    assert marked == {*mistakes.FAULTS}


def test_a_pair_that_is_not_right_is_not_asked_about():
    """The check by itself comes first, and sees a mistake in either framework."""
    wrong = Pair("timm", "plain function", "tiny", "trained", wrong=Wrong("n - 1", 0))
    a, b = wrong.sides
    right = outcome.outcome(a, wrong.size, wrong.weights)
    assert outcome.distance(right, outcome.outcome(b, wrong.size, wrong.weights))[0] < outcome.CLOSE
    apart, where = outcome.distance(right, outcome.outcome(b, wrong.size, wrong.weights, wrong.wrong))
    assert apart > 1e-3
    assert where
    torch_style = styles()["functional torch"]
    moved = outcome.outcome(torch_style, wrong.size, wrong.weights, Wrong("detached positions"))
    assert outcome.distance(right, moved) == (1.0, "pos_embed")


def test_what_cannot_be_seen_does_not_count():
    unseen = Pair("timm", "plain function", "tiny", "zero head", wrong=Wrong("detached mlp", 0))
    assert judge.judged(unseen).verdict == "NOT VISIBLE"


def test_weights_are_of_their_kind():
    size = SIZES["tiny"]
    assert not draw.weights.draw("zeros", size)["head.weight"].any()
    pruned = draw.weights.draw("pruned", size)["blocks.0.attn.qkv.weight"]
    assert 0.8 < np.mean(pruned == 0) < 0.97
    assert len(np.unique(draw.weights.draw("quantised", size)["blocks.1.mlp.fc1.weight"])) <= 15


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [each.name for each in draw.clean() if each.size_name not in LARGE][::40]
)
def test_another_pair_is_equal(name):
    (pair,) = (each for each in draw.clean() if each.name == name)
    result = judge.judged(pair)
    assert result.verdict not in ("DIFFERENT", "ERROR", "WRONG PAIR"), result.report or result.why
