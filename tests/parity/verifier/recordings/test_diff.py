"""Recordings of which a sample of each tensor was kept."""

import numpy as np
import pytest

from parity.measure.traces import record
from parity.verifier.recordings import Recorded, compare_sides
from vit_config import InputError


def test_a_sample_of_large_tensors_is_enough(tmp_path):
    """What was kept as a sample is compared by it."""
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((2, 7, 11)), rng.standard_normal((2, 7, 11))
    for name, changed in (("a", 0.0), ("b", 1e-3)):
        with record(tmp_path / name, keep=13) as trace, trace.step():
            trace.log("loss", arrays[0])
            trace.log("gradients", arrays[1] + changed)
    first = compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b")).first
    assert first.stage == "gradients"


@pytest.mark.parametrize("keep", [(60, 60), (60, None), (None, 60)])
def test_samples_of_feature_maps_are_compared_in_either_layout(keep, tmp_path):
    maps = np.random.default_rng(0).standard_normal((2, 6, 9, 4))  # (B, C, H, W)
    for wrong in (0.0, 1e-9):
        there = (maps * (1 + wrong)).transpose(0, 2, 3, 1)
        for name, array, count in (("a", maps, keep[0]), ("b", there, keep[1])):
            with record(tmp_path / name, keep=count, force=True) as trace, trace.step():
                trace.log("forward", array, path="stem", port="out")
        difference = compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b"))
        assert difference.tensors == 1
        assert difference.equal == (not wrong)
        kept_in_part = [
            f"{tmp_path / name}: of 1 of its 1 tensors" for name, n in zip("ab", keep, strict=True) if n
        ]
        assert [
            note[: len(said)] for note, said in zip(difference.notes, kept_in_part, strict=True)
        ] == (kept_in_part)


def test_samples_of_other_elements_are_refused(tmp_path):
    for name, keep in (("a", 60), ("b", 30)):
        with record(tmp_path / name, keep=keep) as trace, trace.step():
            trace.log("loss", np.ones((61, 7)))
    with pytest.raises(InputError, match=r"keep other elements of .*; record both with the same `keep`"):
        compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b"))


@pytest.mark.parametrize(
    ("stage", "shapes", "message"),
    [
        ("batch", ((4, 5), (4, 6)), r"not the same model: input \(4, 5\) in .*a, \(4, 6\) in .*b"),
        ("forward", ((4, 3), (4, 2)), r"not the same model: output \(4, 3\) in .*a, \(4, 2\) in .*b"),
        ("forward", ((2, 3, 5, 7), (2, 5, 7, 3)), None),  # channels first and last
    ],
)
def test_other_shapes_are_refused(tmp_path, stage, shapes, message):
    for name, shape in zip("ab", shapes, strict=True):
        with record(tmp_path / name) as trace, trace.step():
            trace.log(stage, np.ones(shape), port="out" if stage == "forward" else "")
    sides = [Recorded(tmp_path / name) for name in "ab"]
    if message is None:
        assert compare_sides(*sides).equal
        return
    with pytest.raises(InputError, match=message):
        compare_sides(*sides)


@pytest.mark.parametrize("same", [True, False])
def test_outputs_that_are_not_finite_on_both_sides_are_refused(tmp_path, same):
    """But for as many infinities, which masks have."""
    for name, value in (("a", np.inf), ("b", np.inf if same else np.nan)):
        with record(tmp_path / name) as trace, trace.step():
            trace.log("forward", np.array([value, 1.0]), port="out")
    sides = [Recorded(tmp_path / name) for name in "ab"]
    if same:
        assert compare_sides(*sides).equal
        return
    with pytest.raises(InputError, match=r"not finite, .*a first at \(model\) out, .*b first at"):
        compare_sides(*sides)
