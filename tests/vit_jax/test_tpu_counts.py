"""The same budget on TPU: ViT-B/16 in bfloat16 on eight v5e chips, which need not be there."""

from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

from evidence.bench.counts import count_operations
from tests.support.counts_lock import Lock
from vit_config import Recipe, preset
from vit_jax.compiling import least_effort
from vit_jax.train.hlo import transfers
from vit_jax.train.spread import make_program
from vit_jax.train.topology import get_topology

TOPOLOGY = "v5e:2x4"
MESHES = ("data=8", "fsdp=8")
RECIPE = Recipe(dtype="bfloat16", batch_size=256, clip_norm=1.0)


def counts(mesh):
    """What the step consists of on one chip, and the bytes of each kind of transfer."""
    cfg = preset("vit_base_patch16_224")
    program = make_program(cfg, RECIPE, 10, mesh=mesh, devices=get_topology(TOPOLOGY).devices)
    state = jax.eval_shape(program.initialise)
    image = jax.ShapeDtypeStruct((RECIPE.batch_size, *cfg.image_size, 3), "float32")
    batch = {"image": image, "label": jax.ShapeDtypeStruct((RECIPE.batch_size,), "int32")}
    # with the least effort, as it takes minutes otherwise
    compiled = program.train_step.lower(state, batch).compile(least_effort())
    sent = {f"{kind} bytes": each.nbytes for kind, each in transfers(compiled.as_text()).items()}
    return count_operations(compiled) | sent


LOCK = Lock(
    Path(__file__).parent / "tpu_counts.json",
    TOPOLOGY,
    ("jaxlib", "libtpu"),
    "tools/step_counts.py --platform tpu",
    MESHES,
    counts,
)


@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed; make tpu")
@pytest.mark.parametrize("mesh", MESHES)
def test_a_step_on_v5e_consists_of_no_more_than_is_written_down(mesh):
    LOCK.check(mesh)


@pytest.mark.parametrize(("mesh", "sent"), [("data=8", "all-reduce"), ("fsdp=8", "all-gather")])
def test_what_may_not_grow_is_written_down(mesh, sent):
    """Matrix products are convolutions on a TPU."""
    may_not_grow = {"convolution", "transpose", "copy", "convert", "bytes", f"{sent} bytes"}
    for counted in LOCK.compilers():
        assert may_not_grow <= counted["steps"][mesh].keys()
        assert counted["steps"].keys() == set(MESHES)
