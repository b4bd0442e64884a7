"""Published checkpoints at their own sizes, by names and shapes; the table is docs/published.md."""

from types import SimpleNamespace

import pytest

from evidence.published import ways
from evidence.published.__main__ import MINUTE, keep, rows, saved_lines
from evidence.published.facts import published
from evidence.published.page import Line
from evidence.published.ways import Way
from parity.porting.verification.verify import Verification, VerifiedRun

ALWAYS = {
    "facebook/dinov2-small", "facebook/dinov3-vit7b16-pretrain-lvd1689m",
    "google/siglip2-base-patch16-naflex",
    "vit_giant_patch14_reg4_dinov2.lvd142m", "paige-ai/Virchow2", "RETFound, RETFound_cfp_weights.pth",
    "torchvision vit_b_16.IMAGENET1K_V1", "open_clip ViT-bigG-14, laion2b_s39b_b160k",
}  # fmt: skip
"""One of each library, the largest, those that code says more of than config.json, a decoder."""


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ALWAYS else [pytest.mark.exhaustive]) for n in published()]
)
def test_there_and_back(name, tmp_path):
    (line,) = rows(tmp_path, [name], run=())
    assert line.passed, line
    assert not line.refused, line.refused
    # its own dialect holds it, and so does the project's own
    assert [way.symbol for way in line.ways if way.target == "parity"] == ["="]
    own = {"transformers": "hf", "timm": "timm"}.get(line.library)
    assert [way.symbol for way in line.ways if way.target == own] == ["="] * bool(own)


def test_a_stopped_call_goes_on(tmp_path):
    way = Way("hf", "=", error=1e-15, unrun=("no class",))
    line = Line("a", "timm", "S", "timm-vit", 3, True, (way,))
    path = tmp_path / "kept" / "rows"
    keep(path, line)
    path.write_text(path.read_text() + '{"name": "b", "libr')
    assert saved_lines(path) == {"a": line}


@pytest.mark.filterwarnings("ignore")
def test_what_differs_is_seen(tmp_path, monkeypatch):
    """timm's architecture of this size brings another initial value along, which once was refused."""
    from parity.porting.recognition import known

    monkeypatch.setattr(known, "agree", lambda name, one, other: one == other)
    from parity.porting.dialects.records.timm import nearest

    monkeypatch.setattr(nearest, "UNLIKE", {})
    (line,) = rows(tmp_path, ["facebook/dinov2-small"], run=())
    assert not line.passed
    assert "layer_scale = 1.0 (its header), but 1e-05 (config.json)" in line.ways[0].said


@pytest.mark.parametrize(
    ("said", "symbol", "unrun"),
    [
        ("written: no installed library reads parity", "=", 0),
        ("pixels: prepared tensors were compared", "=", 0),
        ("source: the installed transformers has no class X", "=", 1),
        ("written: timm failed with KeyError: 'x'", "!", 1),
        ("source: timm gives (1, 7), the twins (1, 3): not the same output", "!", 1),
    ],
)
def test_a_library_that_did_not_run_does_not_agree(said, symbol, unrun):
    verification = Verification(
        (VerifiedRun("written", "JAX twin", 1e-15, 1e-12),), "source", (said,), {}
    )
    plain = SimpleNamespace(target=SimpleNamespace(state=SimpleNamespace(said=())))
    judged, error, more, problem = ways.judged(
        SimpleNamespace(verification=verification, converted=plain)
    )
    assert (judged, error, len(more), bool(problem)) == (symbol, 1e-15, unrun, symbol == "!")


def test_what_is_too_large_for_a_minute_is_not_run(tmp_path):
    (line,) = rows(tmp_path, ["facebook/dinov2-base"], most=MINUTE)
    assert not line.run
    assert line.passed


def test_there_are_enough(tmp_path):
    assert len(published()) >= 60
