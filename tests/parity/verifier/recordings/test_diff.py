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
