"""Every switch of the schema, set wrong in one twin: the check fails and names the first module."""

import pytest

from parity.twins.check import check_config
from tests.support.flips import BASE, FLIPS, REFUSED, ROPE, ROPE_FLIPS, UNSEEN
from tests.support.twins import one_jax_twin  # noqa: F401 - a fixture
from vit_config import InputError, ViTConfig
from vit_config.rope import Rope

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("one_jax_twin")]
QUICK = {"act", "rope", "pool"}  # what `make quick` looks at


def test_every_field_has_a_control():
    assert set(FLIPS) == set(ViTConfig.fields())
    assert set(ROPE_FLIPS) == set(Rope.fields())


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, flip in FLIPS.items()
        if flip.where != UNSEEN
    ],
)
def test_a_wrong_switch_is_found(field):
    flip = FLIPS[field]
    base = BASE.replace(**flip.companions)
    if flip.where == REFUSED:
        with pytest.raises(InputError, match=field):
            check_config(base, dtypes=("float64",), wrong={field: flip.value})
        return
    report = check_config(base, dtypes=("float64",), wrong={field: flip.value})
    assert not report.passed
    assert report.divergences[0].where == flip.where, report.divergences[0]


@pytest.mark.slow
@pytest.mark.parametrize("field", ROPE_FLIPS)
def test_a_wrong_rotation_is_found(field):
    flip = ROPE_FLIPS[field]
    report = check_config(BASE.replace(rope=ROPE), dtypes=("float64",), wrong={"rope": flip.value})
    assert not report.passed
    assert report.divergences[0].where == flip.where, report.divergences[0]


@pytest.mark.slow
def test_what_one_evaluation_does_not_see_is_not_called_different():
    """Dropout rates, initial values and other image sizes have controls of their own."""
    unseen = {field: flip for field, flip in FLIPS.items() if flip.where == UNSEEN}
    base = BASE.replace(
        **{name: value for flip in unseen.values() for name, value in flip.companions.items()}
    )
    wrong = {field: flip.value for field, flip in unseen.items()}
    assert check_config(base, dtypes=("float64",), wrong=wrong).passed
