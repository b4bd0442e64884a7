"""Classes of transformers to timm and back; the whole table is docs/transformers_table.md."""

from pathlib import Path

import pytest

from evidence import transformers_table

REPOSITORY = Path(__file__).parents[3]
SAMPLE = [
    "ViTModel, pooler",
    "ViTForImageClassification",
    "Dinov2ForImageClassification",
    "Dinov2WithRegistersModel, gated",
    "CLIPModel, both towers",
]
"""With a pooler, with a head and an epsilon that no config.json of timm's says, with a head on two
vectors, with registers, with two towers."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the library
def test_there_and_back(tmp_path):
    lines = list(transformers_table.rows(tmp_path, SAMPLE))
    assert all(line.passed for line in lines), lines
    page = (REPOSITORY / "docs/transformers_table.md").read_text(encoding="utf-8").splitlines()
    for line in transformers_table.markdown(lines).splitlines()[10:]:
        assert line in page, "write docs/transformers_table.md anew"


def test_every_class_that_is_written_or_read_is_in_the_table():
    """By the names that the dialects give their classes."""
    from parity.porting.dialects import find_dialects
    from parity.porting.dialects.records.hf.config import HfSettings

    of_the_table = {each.config for each in transformers_table.MODELS.values()}
    for dialect in find_dialects("hf"):
        assert isinstance(dialect.settings, HfSettings)
        kinds = {
            kind.replace("_", "").replace("-", "").removesuffix("model")
            for kind in dialect.settings.model_types
        }
        known = {config.removesuffix("Config").lower() for config in of_the_table}
        assert kinds & known, dialect.name
