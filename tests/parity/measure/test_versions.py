"""What depends on the version of a library: known versions, and those that nobody has seen."""

from types import SimpleNamespace

import jax
import pytest

from parity.measure.compiling import quickly
from parity.measure.versions import of_jax, seen
from vit_config import InputError
from vit_jax.compiling import least_effort

pytestmark = [pytest.mark.quick, pytest.mark.versions]


@pytest.fixture
def install(monkeypatch):
    seen._say.cache_clear()
    yield lambda version: monkeypatch.setattr(seen, "installed", lambda _: version)
    seen._say.cache_clear()


def test_versions_are_ordered_by_their_numbers():
    ordered = ["0.9.2", "0.10", "0.10.2", "0.12.0", "0.12.0.1", "0.12.1rc1", "1.0.dev20261125"]
    assert sorted(ordered, key=seen.numbers) == ordered
    assert seen.numbers("0.12.0") == seen.numbers("0.12")
    assert seen.numbers("nightly") == ()


@pytest.mark.parametrize(("version", "known"), [("0.10.2", True), ("0.11.0", True), ("0.11.1", False)])
def test_a_flag_goes_where_the_compiler_knows_it(install, version, known, capsys):
    install(version)
    assert ("--xla_cpu_use_fusion_emitters=false" in quickly()) is known
    assert "--xla_backend_optimization_level=0" in quickly()
    assert set(of_jax.usual_options()) == set(of_jax.quick_flags())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("version", ["0.9.2", "0.12.1", "0.13.0rc1"])
def test_an_unseen_version_gets_no_flags_and_says_so_once(install, version, capsys):
    install(version)
    assert (quickly(), quickly()) == ("", "")
    of_jax.say_how_programs_are_read()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all(f" {version} is not among what was tested, jax" in line for line in said)


def _tree(*parts):
    return SimpleNamespace(unpack=lambda: parts)


def test_a_scan_is_read_by_counts_and_by_its_tree():
    common = {"jaxpr": "body", "length": 5, "reverse": True, "unroll": 1}
    counted = of_jax.read_scan(common | {"num_consts": 2, "num_carry": 1, "linear": ()})
    tree = _tree((None, None), (None,), (None, None, None))
    assert of_jax.read_scan(common | {"ft_in": tree, "ft_out": tree}) == counted
    assert (counted.constants, counted.carried, counted.length) == (2, 1, 5)
    with pytest.raises(InputError, match=r"a scan of jax .* has the parameters jaxpr, length, .*"):
        of_jax.read_scan(common)


def test_this_compiler_knows_the_options_of_least_effort():
    assert jax.jit(lambda x: x + 1).lower(1).compile(least_effort())(1) == 2
