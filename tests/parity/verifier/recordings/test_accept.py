"""`parity diff --accept`: causes that the user knows of."""

import json

import pytest

import parity
from parity.cli import main
from tests.parity.verifier.recordings.test_step_causes import adamw, run_torch
from tests.parity.verifier.recordings.test_step_causes_early import norm_clip, torch_clip
from vit_config import ConfigError

MOST = 0.1


@pytest.fixture
def diff(capsys):
    """`parity diff`: status, output and error."""

    def run(*arguments):
        status = main(["diff", *map(str, arguments)])
        said = capsys.readouterr()
        return status, " ".join(said.out.split()), said.err

    return run


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    run_torch(folder / "a.trace", clip=torch_clip(MOST))
    run_torch(folder / "b.trace", clip=norm_clip(MOST, 0.0))
    run_torch(folder / "c.trace", make=lambda m: adamw(m, decay=0.1), clip=norm_clip(MOST, 0.0))
    return [folder / f"{name}.trace" for name in "abc"]


def test_equal_but_for_a_convention(diff, traces, tmp_path):
    a, b, _ = traces
    written = tmp_path / "report.json"
    status, out, _ = diff(a, b, "--json", written)
    report = json.loads(written.read_text())
    assert (status, report["verdict"], report["but_for"]) == (1, "DIFFERENT", ["clip-epsilon"])
    assert (
        f"EQUAL but for: clip-epsilon {a} and {b}; exit status 1, or 0 with --accept clip-epsilon" in out
    )
    assert "DIFFERENT" not in out
    assert (report["equal"], report["findings"][0]["level"]) == (False, "error")
    status, out, _ = diff(a, b, "--accept", "clip-epsilon", "--json", written)
    report = json.loads(written.read_text())
    assert (status, report["verdict"], report["but_for"]) == (0, "EQUAL", ["clip-epsilon"])
    assert out.endswith(f"EQUAL but for: clip-epsilon {a} and {b}")
    assert (report["equal"], report["findings"][0]["level"]) == (True, "note")
    assert report["accepted"] == ["clip-epsilon"]


@pytest.mark.parametrize(
    "words",
    [
        ["--accept", "clip-epsilon,weight-decay"],
        ["--accept", "clip-epsilon", "--accept", "weight-decay"],
    ],
)
def test_several_are_accepted(diff, traces, words):
    a, _, c = traces
    status, out, _ = diff(a, c)
    assert status == 1
    assert out.endswith(f"DIFFERENT: {a} and {c}")
    status, out, _ = diff(a, c, *words)
    assert status == 0
    assert out.endswith(f"EQUAL but for: clip-epsilon, weight-decay {a} and {c}")


def test_what_is_accepted_and_not_there_changes_nothing(diff, traces):
    a, b, _ = traces
    status, out, _ = diff(a, a, "--accept", "weight-decay")
    assert (status, out.endswith(f"EQUAL: {a} and {a}, to rounding")) == (0, True)
    assert diff(a, b, "--accept", "weight-decay")[0] == 1


WRONG = [
    ("clip-epsilom", "no cause has this name; did you mean clip-epsilon?"),
    (
        "clip-epsilon,zzz",
        "no cause has this name; the causes are amsgrad, beta1, beta2, bias-correction",
    ),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_cause_that_does_not_exist(diff, traces, given, said):
    status, _, error = diff(traces[0], traces[1], "--accept", given)
    assert status == 2
    assert error.startswith(f"parity diff: --accept {given.rpartition(',')[2]}: {said}")
    assert error.count("\n") == 1


def test_the_function_takes_them_too(traces):
    a, b, _ = traces
    assert parity.diff(a, b, accept=["clip-epsilon"]).equal
    assert not parity.diff(a, b).equal
    with pytest.raises(ConfigError, match="did you mean clip-epsilon"):
        parity.diff(a, b, accept=["clip-epsilom"])
    with pytest.raises(ConfigError, match="accept goes with two recordings, and a is none"):
        parity.diff((print, 1), (print, 1), accept=["clip-epsilon"])


def test_programs_have_no_causes_to_accept(diff):
    status, _, error = diff("one.py:f", "two.py:f", "--accept", "clip-epsilon")
    assert (status, error) == (
        2,
        "parity diff: --accept goes with two recordings, and one.py:f is none\n",
    )
