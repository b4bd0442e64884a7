"""The rows of docs/exporting_table.md, a share of them each time."""

import pytest

import parity
from evidence import exporting_table as table


def test_the_page_is_of_its_rows():
    rows = table.json.loads(table.KEPT.read_text())
    lines = table.PAGE.read_text().splitlines()
    cells = [tuple(line.strip("| ").split(" | ")[:3]) for line in lines if line.count("|") == 11][2:]
    assert {"/".join(each) for each in cells} == set(rows)
    assert rows.keys() <= {f"{f}/{to}/{dtype}" for f in table.FAMILIES for to, dtype in table.CASES}
    assert all(row["limit"] is None or row["error"] <= row["limit"] for row in rows.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", table.FAMILIES)
@pytest.mark.parametrize(("to", "dtype"), table.CASES)
def test_every_family_leaves_unharmed(tmp_path, family, to, dtype):
    source = table.write_source(tmp_path / "own.safetensors", family, depth=1)
    given = "tokens" if family == table.TEXT else "float32"
    done = parity.export(source, tmp_path / "out", to=to, dtype=dtype, input=given)
    assert all(each.passed for each in done.compared)
