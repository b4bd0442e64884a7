"""PyTorch's checkpoints: what is restored is what was saved, or the damage is seen and skipped."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.tiny import TINY
from vit_config import CheckpointError, Recipe
from vit_config.job import Job
from vit_torch.train.checkpoint import Checkpoints, read_checkpoint, save_checkpoint, to_named
from vit_torch.train.program import make_program
from vit_torch.train.state import store
from vit_train.folder.checkpoints import KEEP

CFG = TINY.replace(depth=1)
RECIPE = Recipe(ema=0.9, weight_decay=0.1)
JOB = Job(CFG, RECIPE, "digits")
PROGRAM = make_program(CFG, RECIPE, 1)


def make_state(step):
    """A state as after so many updates, on the host: every tensor drawn at random."""
    state = PROGRAM.initialise()._replace(step=step)
    for variable in state.model.parameters():
        variable.grad = torch.zeros_like(variable)
    state.optimizer.step()
    stored = store(state)
    torch.manual_seed(step)
    for tensor in to_named(stored).values():
        tensor.normal_()
    return stored


def open_folder(folder, run_id="one"):
    return Checkpoints(folder, run_id=run_id, job=JOB, fingerprint="0")


def assert_equal(a, b):
    assert a["step"] == b["step"]
    a, b = to_named(a), to_named(b)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert torch.equal(a[name], b[name]), name


@pytest.fixture
def saved(tmp_path):
    """A folder with checkpoints of the steps 3, 6, 9."""
    for step in (3, 6, 9):
        open_folder(tmp_path / "run").save(step, make_state(step))
    return tmp_path / "run"


def restore(folder, run_id="one", like=None):
    said = []
    like = PROGRAM.abstract_state if like is None else like
    step, state = open_folder(folder, run_id).restore_latest(like, warn=said.append)
    return step, state, said


def test_the_newest_comes_back_exactly(saved):
    step, state, said = restore(saved)
    assert (step, said) == (9, [])
    assert_equal(state, make_state(9))
    assert_equal(store(PROGRAM.place_state(state)), state)


def test_the_optimiser_keeps_the_recipes_numbers(saved):
    _, state, _ = restore(saved)
    state["optimizer"]["param_groups"][0]["betas"] = (0.5, 0.5)
    placed = PROGRAM.place_state(state)
    assert placed.optimizer.param_groups[0]["betas"] == (RECIPE.beta1, RECIPE.beta2)


def test_moments_find_their_parameters_by_name(saved):
    """In whatever order and groups they were written."""
    _, state, _ = restore(saved)
    expected = to_named(state)
    groups = state["optimizer"]["param_groups"]
    for group in groups:
        group["params"], group["param_names"] = group["params"][::-1], group["param_names"][::-1]
    groups.reverse()
    actual = to_named(store(PROGRAM.place_state(state)))
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_nothing_to_restore(tmp_path):
    assert restore(tmp_path / "new") == (None, None, [])


def test_only_the_newest_few_are_kept(tmp_path):
    for step in range(8, KEEP + 10):  # 9 before 10 by name is after it by number
        open_folder(tmp_path).save(step, make_state(step))
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == list(range(10, KEEP + 10))


def test_a_step_is_never_overwritten(tmp_path):
    open_folder(tmp_path).save(3, make_state(3))
    with pytest.raises(CheckpointError, match=r"3.pt: already exists"):
        open_folder(tmp_path).save(3, make_state(4))
    assert_equal(restore(tmp_path)[1], make_state(3))


def flip(path):
    """One bit of one tensor; between the tensors, a file of torch's has padding that nobody reads."""
    content = bytearray(path.read_bytes())
    tensor = torch.load(path, weights_only=True)["ema"]["head.weight"]
    content[content.index(tensor.numpy().tobytes()) + 5] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def replace(path):
    torch.save([1, 2], path)


def rewrite(change):
    """Write a checkpoint anew, as a program would that knows nothing of digests."""

    def damage(path):
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path)

    return damage


def change_value(content):
    content["optimizer"]["state"][3]["exp_avg_sq"].view(-1)[1] += 1


DAMAGES = {
    "flip": flip,
    "truncate": truncate,
    "empty": empty,
    "replace": replace,
    "step": rewrite(lambda content: content.update(step=4)),
    "recipe": rewrite(lambda content: content.update(recipe="{}")),
    "no_ema": rewrite(lambda content: content.update(ema=None)),
    "no_optimizer": rewrite(lambda content: content.pop("optimizer")),
    "no_digests": rewrite(lambda content: content.pop("digests")),
    "a_tensor_less": rewrite(lambda content: content["model"].pop("head.bias")),
    "another_type": rewrite(lambda c: c["ema"].update({"head.bias": c["ema"]["head.bias"].double()})),
    "value": rewrite(change_value),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped(saved, damage):
    DAMAGES[damage](saved / "9.pt")
    step, state, said = restore(saved)
    assert step == 6
    assert_equal(state, make_state(6))
    assert len(said) == 1
    assert "9.pt is damaged and skipped" in said[0]
    assert "\n" not in said[0]
    assert (saved / "damaged-9.pt").is_file()  # kept, but out of the way:
    open_folder(saved).save(9, make_state(9))
    assert restore(saved)[0] == 9


def test_a_checkpoint_under_another_steps_name_is_skipped(saved):
    (saved / "3.pt").rename(saved / "12.pt")
    step, _, said = restore(saved)
    assert step == 9
    assert said[0].endswith("12.pt is damaged and skipped: it says that it is of step 3")


def test_a_wrong_value_names_the_tensor(saved):
    DAMAGES["value"](saved / "9.pt")
    names = torch.load(saved / "9.pt", weights_only=True)["optimizer"]["param_groups"][0]["param_names"]
    _, _, said = restore(saved)
    assert said[0].endswith(f": the bytes of optimizer.{names[3]}.exp_avg_sq do not match their digest")


def test_nothing_whole_is_an_error(saved):
    for step in (3, 6, 9):
        flip(saved / f"{step}.pt")
    with pytest.raises(CheckpointError, match="all 3 checkpoints are damaged"):
        restore(saved)


def test_another_run_is_refused(saved):
    with pytest.raises(CheckpointError, match=r"9\.pt: belongs to run one, this is run two"):
        restore(saved, run_id="two")


def test_a_later_version_is_refused(saved):
    rewrite(lambda content: content.update(version=2))(saved / "9.pt")
    with pytest.raises(CheckpointError, match=r"9\.pt: is in version 2 of its format, .* version 1;"):
        restore(saved)


def test_another_model_is_refused_in_one_message(saved):
    other = make_program(CFG.replace(num_classes=10, layer_scale=0.1), RECIPE, 1).abstract_state
    with pytest.raises(CheckpointError) as caught:
        restore(saved, like=other)
    said = str(caught.value)
    for part in (
        "model.head.bias: [[11], 'float32'] in the checkpoint, [[10], 'float32'] in the model",
        "optimizer.head.bias.exp_avg: [[11], 'float32'] in the checkpoint, [[10], 'float32'] in the",
        "ema.blocks.0.ls1.gamma: not in the checkpoint",
    ):
        assert part in said
    assert "\n" not in said
    without = make_program(CFG, RECIPE.replace(ema=None), 1).abstract_state
    with pytest.raises(CheckpointError, match=r"another model: ema.blocks.0.* not in the model"):
        restore(saved, like=without)


def test_a_content_of_ones_own_is_sealed(tmp_path):
    """As a program does that makes a run's state from another's."""
    content = {**make_state(2), "run_id": "one", "schema": CFG.to_json(), "recipe": RECIPE.to_json()}
    path = save_checkpoint(tmp_path, {**content, "data": {"name": "digits", "fingerprint": "0"}})
    assert path == tmp_path / "2.pt"
    assert read_checkpoint(path)["schema"] == CFG.to_json()
    assert_equal(restore(tmp_path)[1], make_state(2))


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.vit_torch.test_train_torch_checkpoint import make_state, open_folder
from vit_config import CheckpointError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, none = resource.getrlimit(resource.RLIMIT_FSIZE)
state = make_state(12)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, none))
try:
    open_folder(Path(sys.argv[1])).save(12, state)
except CheckpointError as error:
    print(error, end="")
resource.setrlimit(resource.RLIMIT_FSIZE, (none, none))  # for coverage, which writes at the end
"""


def test_a_full_disk_loses_nothing(saved):
    before = sorted(saved.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(saved), str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the last checkpoint cannot be written" in done.stdout
    assert "\n" not in done.stdout
    assert done.stderr == ""
    assert sorted(saved.iterdir()) == before
    assert restore(saved)[0] == 9
