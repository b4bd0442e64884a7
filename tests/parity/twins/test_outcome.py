"""A training step is a recording like any other: the same places, read and judged the same way."""

import numpy as np
import pytest

from parity.measure.invisible import Sight, invisible
from parity.measure.redraw import redraw
from parity.measure.site import Site
from parity.runs.state import TrainingState
from parity.twins.judge import error_of
from parity.twins.steps.outcome import Change, StepOutcome, VisibleOutcome
from parity.twins.steps.trainer import StepGradients
from tests.support.tiny import TINY
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

BIAS = "blocks.0.attn.qkv.bias"


def arrays(seed: int) -> dict[str, np.ndarray]:
    return {name: redraw(name, p.kind, p.shape, seed=seed) for name, p in parameters(TINY).items()}


@pytest.fixture
def outcome() -> StepOutcome:
    before = TrainingState(6, arrays(0), {"exp_avg": arrays(1)}, arrays(2))
    after = TrainingState(7, arrays(3), {"exp_avg": arrays(4)}, arrays(5))
    return StepOutcome(before, StepGradients(0.25, arrays(6)), after)


def test_every_number_of_a_step_has_a_place(outcome: StepOutcome) -> None:
    sites = list(outcome.sites())
    levels = list(dict.fromkeys(site.level for site in sites))
    assert levels == ["loss", "gradients", "exp_avg", "parameters", "ema"]
    assert len(sites) == 1 + 4 * len(parameters(TINY))
    assert all(site in outcome and site.step == 7 for site in sites)
    assert Site(7, "forward", "blocks.0", "out") not in outcome
    assert outcome.read(Site(7, "loss", "mean")) == 0.25
    assert outcome.read(Site(7, "updated", BIAS, "ema")) is outcome.after.parts()["ema"][BIAS]
    assert list(outcome.sites("moments")) == [s for s in sites if s.level == "exp_avg"]


def test_what_the_loss_cannot_see_is_left_out_of_what_was_updated(outcome: StepOutcome) -> None:
    seen, site = VisibleOutcome(outcome, Sight(TINY)), Site(7, "updated", BIAS)
    hidden = outcome.after.params[BIAS][invisible(TINY)[BIAS]].size
    assert seen.read(site).size == outcome.after.params[BIAS].size - hidden
    assert seen.read(Site(7, "gradients", BIAS)) is outcome.taken.gradients[BIAS]
    unclear = {name: np.zeros(p.shape, bool) for name, p in parameters(TINY).items()}
    nothing = VisibleOutcome(outcome, Sight(TINY), unclear)
    assert site not in nothing
    assert {s.stage for s in nothing.sites()} == {"loss", "gradients", "moments"}


def test_the_change_is_what_the_step_made(outcome: StepOutcome) -> None:
    site = Site(7, "updated", "blocks.0.mlp.fc1.weight")
    change = Change(outcome, Sight(TINY))
    made = outcome.after.params[site.path] - outcome.before.params[site.path]
    assert np.array_equal(change.read(site), made)
    assert error_of(change, VisibleOutcome(outcome, Sight(TINY)), site) > 0.0
    assert error_of(change, change, site) == 0.0
