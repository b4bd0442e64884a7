"""Mistakes that people made in public: each is caught, on its line, and no name is wrong."""

from collections import Counter

import pytest

from evidence.museum.rooms import ROOMS, exhibits, judge

NAMELESS = {
    "batch_is_not_first",
    "one_projection_for_all_heads",
    "attention_twice",
    "class_token_dropped",
    "halves_with_sines_of_pairs",
    "turned_by_the_head",
    "mean_of_means",
    "clipped_while_accumulating",
    "epsilon_corrected",
    "epsilon_after_the_reciprocal",
}
"""No single exchange explains them: the two formulas are what there is to say."""

REPRESENTATIVES = (
    "scale_of_the_heads",
    "merged_without_permute",
    "epsilon_of_torch",
    "exact_gelu_of_gemma",
    "second_norm_replaces_the_stream",
    "class_token_without_position",
    "repeated_as_a_whole",
    "image_viewed_as_patches",
    "rows_not_permuted_back",
    "decay_of_the_updated",
)
"""One of each room: they run always."""


def check(name):
    judged, comparison = judge(exhibits()[name])
    assert judged.caught, comparison.to_text()
    assert judged.placed, comparison.to_text()
    assert not judged.wrong, comparison.to_text()
    assert judged.named == (name not in NAMELESS), comparison.to_text()


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_mistake_of_each_room(name):
    check(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in exhibits() if name not in REPRESENTATIVES])
def test_a_mistake(name):
    check(name)


def test_every_exhibit_has_an_address_and_a_wrong_line():
    for each in exhibits().values():
        kind = each.address.removeprefix("https://github.com/").split("/")
        assert len(kind) == 4, each.address
        assert kind[2] in ("issues", "pull"), each.address
        assert kind[3].isdigit(), each.address
        assert each.lines, each.name
        assert each.fact.endswith("."), each.name
    assert len(exhibits()) >= 80
    assert set(Counter(each.make.__module__.rpartition(".")[2] for each in exhibits().values())) == {
        *ROOMS
    }
