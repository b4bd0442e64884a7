"""A step compiled ahead of time: memory, work and transfers are those of the arithmetic."""

import math
from functools import cache

import jax
import pytest

from parity.cli import run
from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.job import Job
from vit_config.parameters import parameters
from vit_jax.train.hlo import Transfers, shape_bytes, transfers
from vit_jax.train.mesh import make_mesh
from vit_jax.train.preflight import Flight, fly, largest_batch, needed, roofline
from vit_jax.train.topology import CHIPS, Topology, get_topology

CFG = ViTConfig(
    image_size=(14, 15),
    patch_size=(7, 5),
    hidden_size=20,
    depth=2,
    num_heads=2,
    mlp_dim=28,
    num_classes=5,
)
JOB = Job(CFG, Recipe(batch_size=8, ema=0.9, accumulate=2))
PLAIN = Job(CFG, Recipe(batch_size=8))
"""As the job, in one piece: half as long to trace."""
NUMBERS = sum(math.prod(each.shape) for each in parameters(CFG).values())
SCALARS = 3 * 4
"""Bytes of the step, Adam's count and that of the learning rate."""


@cache  # several tests look at the same program
def flight(mesh, count, job=PLAIN, limit=2**30):
    topology = Topology("local", tuple(jax.devices()[:count]), None)
    how = {"parallel": "jit", "mesh": mesh, "scan": "auto", "remat": "none"}
    return fly(job, topology, how, job.recipe.batch_size, limit=limit)


def test_arguments_are_those_of_the_arithmetic():
    actual = flight("data=2", 2, JOB)
    images = 4 * 14 * 15 * 3 + 4  # of half a batch, with a label each
    assert actual.memory.state == {
        "parameters": 4 * NUMBERS,
        "moments": 2 * 4 * NUMBERS + 2 * 4,
        "average": 4 * NUMBERS,
    }
    assert actual.memory.batch == 4 * images
    assert actual.memory.arguments == 4 * 4 * NUMBERS + SCALARS + 4 * images
    assert actual.fits
    assert actual.needed == actual.memory.total > actual.memory.arguments


def test_weights_of_other_classes_are_refused_before_anything_is_compiled():
    job = Job(CFG, JOB.recipe.replace(class_weights=(1.0, 2.0)))
    with pytest.raises(ConfigError, match=r"class_weights has 2 numbers, .* num_classes = 5"):
        flight("data=1", 1, job)


def work(*wanted):
    """Three times the forward pass, less the gradient of the images, which nobody asks for.

    Args:
        wanted: how many of its 7 tokens each block puts out.
    """
    tokens, D, M, patch, classes = 7, 20, 28, 7 * 5 * 3, 5
    projected = 2 * tokens * 3 * D * D
    blocks = sum(projected + 2 * n * (D * D + 2 * D * M) + 2 * 2 * n * tokens * D for n in wanted)
    forward = 2 * 6 * patch * D + blocks + 2 * D * classes
    return 8 * (3 * forward - 2 * 6 * patch * D)


def test_work_is_the_products_of_the_model():
    """The last block puts out the class token alone."""
    assert flight("data=1", 1).flops == work(7, 1)
    assert flight("data=2", 2).flops == flight("data=2", 2, JOB).flops == work(7, 1) / 2


@pytest.mark.parametrize(("remat", "job"), [("none", JOB), ("full", PLAIN)])
def test_a_loop_is_counted_as_often_as_it_runs(remat, job):
    """Work as of all tokens in every block; of transfers at least each block's gradients."""
    mesh, topology = "data=2,fsdp=2", Topology("local", tuple(jax.devices()[:4]), None)
    how = {"parallel": "jit", "mesh": mesh, "scan": "on", "remat": remat}
    actual = fly(job, topology, how, 8, limit=2**30)
    ahead = 2 * 8 * CFG.depth * 7 * 4 * 20 * 20  # what is computed again: at least q, k, v and proj
    expected = work(7, 7) / 4
    assert actual.flops == expected if remat == "none" else actual.flops > expected + ahead / 4
    assert actual.transfers["all-gather"].count >= CFG.depth * 4  # as many matrices


def test_axes_may_share_a_side_of_a_slice(monkeypatch):
    """As fsdp = 32 on 8 x 8 chips, for which JAX finds no sides of its own."""

    def refuse(*_, **__):
        raise NotImplementedError("Failed to find assignment")

    monkeypatch.setattr(jax, "make_mesh", refuse)
    mesh = make_mesh({"data": 2, "fsdp": 4, "tensor": 1}, jax.devices())
    assert dict(mesh.shape) == {"data": 2, "fsdp": 4, "tensor": 1}
    assert set(mesh.devices.flat) == set(jax.devices())


def test_transfers_are_the_gradients():
    """On two devices: every gradient once, and a few scalars."""
    moved = flight("data=2", 2).transfers
    assert moved.keys() == {"all-reduce"}
    assert 4 * NUMBERS <= moved["all-reduce"].nbytes <= 4 * NUMBERS + 64
    assert flight("data=1", 1).transfers == {}


HLO = """
HloModule step

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%all-reduce-scatter.1 (x: bf16[8,4]) -> bf16[2,4] {
  %x = bf16[8,4]{1,0} parameter(0)
  %all-reduce.5 = bf16[8,4]{1,0} all-reduce(%x), to_apply=%add
  ROOT %slice = bf16[2,4]{1,0} dynamic-slice(%all-reduce.5, %c, %c)
}

%body (s: (s32[], f32[6])) -> (s32[], f32[6]) {
  %ag = (f32[3]{0}, f32[6]{0:T(128)}) all-gather-start(%w), dimensions={0}
  ROOT %agd = f32[6]{0} all-gather-done(%ag)
}

%second (s: (s32[], f32[6])) -> (s32[], f32[6]) {
  ROOT %permuted = f32[6]{0} collective-permute(%w), source_target_pairs={{0,1}}
}

%until (s: (s32[], f32[6])) -> pred[] {
  %limit = s32[]{:T(128)} constant(4)
  %i = s32[]{:T(128)} get-tuple-element(%s), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

ENTRY %main (p: f32[6]) -> f32[6] {
  %counted = (s32[], f32[6]{0}) while(%t), condition=%until, body=%second, metadata={op_name="while"}
  %loop = (s32[], f32[6]{0}) while(%t), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %fused = bf16[2,4]{1,0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
  ROOT %both = (f32[7]{0}, pred[]) all-reduce(%a, %b), to_apply=%add
}
"""  # noqa: E501


def test_transfers_are_counted_as_often_as_they_run():
    assert transfers(HLO) == {
        "all-gather": Transfers(5, 5 * 24),
        "reduce-scatter": Transfers(1, 16),
        "all-reduce": Transfers(1, 29),
        "collective-permute": Transfers(4, 4 * 24),
    }
    assert shape_bytes("(bf16[3,5]{1,0}, u8[7], token[])") == 37


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Ran out of memory in memory space hbm. Used 20.31G of 15.75G hbm.", 20.31 * 2**30),
        (
            "the total memory required for HLO temporaries (53.02G) exceeds available HBM (15.75G).",
            53.02 * 2**30,
        ),
        ("something else (1) went wrong", 0),
    ],
)
def test_the_number_in_a_refusal(message, expected):
    assert needed(f"RESOURCE_EXHAUSTED: {message}") == int(expected)


def fake(limit):
    """A step that needs ten bytes an image and a hundred."""

    def attempt(batch):
        attempts.append(batch)
        return Flight(batch, 100 + 10 * batch <= limit, "", 100 + 10 * batch, None, 0, 0, {}, 0, 0)

    attempts = []
    return attempt, attempts


@pytest.mark.parametrize(
    ("first", "limit", "expected"),
    [
        (8, 1000, (88, 92)),
        (512, 1000, (88, 92)),
        (8, 100, (None, 4)),
        (4, 140, (4, 8)),
        (128, 1300, (120, 128)),  # a sixteenth apart
    ],
)
def test_the_largest_batch_is_found_by_bisection(first, limit, expected):
    attempt, attempts = fake(limit)
    actual = largest_batch(attempt, attempt(first), 4)
    assert tuple(each and each.batch_size for each in actual) == expected
    assert len(attempts) < 10
    assert all(batch % 4 == 0 for batch in attempts)


def test_the_roofline_says_what_bounds_a_step():
    work = Flight(8, True, "", 0, None, 197e12, 8.19e9, {"all-reduce": Transfers(3, 10**9)}, 0, 0)
    bounds = roofline(work, CHIPS["v5e"])
    assert (bounds.compute, bounds.memory, bounds.links) == pytest.approx((1.0, 0.01, 0.01))
    assert (bounds.bound, bounds.mfu) == ("compute", 1.0)
    work = Flight(8, True, "", 0, None, 197e12, 8.19e11 * 4, {}, 0, 0)
    assert (roofline(work, CHIPS["v5e"]).bound, roofline(work, CHIPS["v5e"]).mfu) == ("memory", 0.25)


@pytest.mark.parametrize("name", ["v5e", "h100:8", "v5e:2x", "v5e:2,4"])
def test_an_unknown_topology_is_refused(name):
    with pytest.raises(ConfigError, match=f"--topology {name}: expected local, or a chip .* v4, v5e"):
        get_topology(name)


def test_a_slice_that_is_not_made_is_refused():
    with pytest.raises(ConfigError, match="--topology v5e:2x4x2: v5e is made in slices of 2 sides only"):
        get_topology("v5e:2x4x2")


def test_the_command_looks_for_the_largest_batch(capsys, monkeypatch):
    """In whole parts of what is split, where the compiler only says that the first does not fit."""

    def tried(job, topology, how, batch, *, limit, quick):
        batches.append(batch)
        fits = batch <= 50
        return Flight(batch, fits, "" if fits else "no room", batch * 2**20, None, 0, 0, {}, 0, 0)

    batches = []
    monkeypatch.setattr("vit_jax.train.preflight.fly", tried)
    argv = ["--recipe.accumulate", "2", "--recipe.batch-size", "64", "--hbm", "0.05", "--largest"]
    assert run("preflight", [*argv, "--mesh", "data=2,fsdp=2,tensor=2"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "verdict does not fit: at least 64.00 MiB" in said
    assert "XLA says no room" in said
    assert "largest batch 48 takes 48.00 MiB; 56 would take 56.00 MiB" in said
    assert all(batch % 8 == 0 for batch in batches)
    assert run("preflight", ["--framework", "torch"]) == 2
    assert "not of --framework torch" in capsys.readouterr().err


def test_the_command_says_whether_a_run_fits(capsys):
    argv = ["--mesh", "data=2,fsdp=4", "--recipe.batch-size", "8", "--model.depth", "1"]
    assert run("preflight", argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "local: 8 x cpu" in said
    assert "verdict fits:" in said
    assert "all-gather" in said
    assert "largest" not in said
    free = {"crop": "torchvision", "shift": "0", "rotate": "0", "scale": "0"}
    side = [word for name, value in free.items() for word in (f"--recipe.augment.{name}", value)]
    side += ["--recipe.device-side", "16"]
    assert run("preflight", [*argv, "--hbm", "0.0001", *side]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "verdict does not fit:" in said
    assert "left out the changes of images on the devices" in said
    assert run("preflight", [*argv, "--parallel", "pmap", "--mesh", "data=8"]) == 2
