"""A sample of `evidence.loaded`: omissions in models of other libraries, and right ones."""

import pytest

from evidence.loaded.__main__ import judge_case, score
from evidence.loaded.case import cases_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that make the models
SAMPLE = {
    "in_torch": ("vit: prefix module. lost, strict=False", "tv_resnet: running means not loaded",
                 "bert: queries and keys, or two layers, exchanged", "gpt2: as it is",
                 "swin: a trainer's checkpoint, with a prefix and moments", "clip: the average of two"),
    "wrapped": ("torch.compile: head lost", "position table resampled", "half as deep as the file",
                "meta device, assigned", "tied in the model, two tensors in the file"),
    "dialects": ("timm from hf-vit", "ViTForImageClassification from own names",
                 "an NNX ViT from hf-vit: "),
    "in_jax": ("msgpack, untrained", "Orbax: query and key exchanged"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("group", SAMPLE)
def test_a_sample_is_judged_rightly(group):
    cases = [case for case in cases_of(group) if case.name.startswith(SAMPLE[group])]
    outcomes = [judge_case(case) for case in cases]
    assert len(outcomes) >= len(SAMPLE[group]) - 2
    assert [(each.case.name, each.text) for each in outcomes if not each.right] == []
    assert "| **all** |" in score(outcomes)[-1]


def test_there_are_sixty_of_each():
    kinds = [case.loaded for group in SAMPLE for case in cases_of(group)]
    assert min(kinds.count(True), kinds.count(False)) >= 60
