"""Every test sees eight CPU devices, 32-bit JAX unless it asks for `x64`, and no warning."""

import gc
import os
import sys
import tempfile
from pathlib import Path

from parity.measure.compiling import quickly

# What people export for their own work decides nothing here, nor in the commands that tests start.
# (COLUMNS is set by readline, too, which pytest imports: workers would be told that a pipe is 80 wide.)
for name in (
    *("HF_HUB_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"),
    *(
        "JAX_ENABLE_X64",
        "JAX_DEFAULT_MATMUL_PRECISION",
        "JAX_DEBUG_NANS",
        "JAX_DISABLE_JIT",
        "JAX_NUM_CPU_DEVICES",
    ),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONWARNINGS", "PYTHONOPTIMIZE"),
):
    os.environ.pop(name, None)

# Eight devices, and code that is quick to compile rather than quick to run: the suite mostly compiles.
# Commands that tests start inherit all of this.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {quickly()}"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist runs one process per core
os.environ["JAX_PLATFORMS"] = "cpu"
ROOT = Path(__file__).parent.parent
ENOUGH = 1.5
"""GiB of memory of one worker beyond which it forgets what JAX compiled, between two files."""
CACHE = ROOT / ".cache" if os.access(ROOT, os.W_OK) else Path(tempfile.gettempdir()) / "vit-parity-tests"
# one folder of compiled programs for all workers, all commands and the next run
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "jax"))
os.environ["XDG_CACHE_HOME"] = str(CACHE)  # indexes of data sets
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(CACHE / "hypothesis")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax  # noqa: E402
import pytest  # noqa: E402

from vit_jax import host_memory  # noqa: E402

# what tests write need not outlive a power cut; test_weights_file.py sees that it is synced
os.fsync = lambda fd: None
# a command that a test calls leaves the allocator of the test's process as it is
host_memory.keep_freed_memory = lambda: False

pytest.register_assert_rewrite("tests.support")

from tests.support import cost, share  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this suite."""
    parser.addoption("--share", default="none", help="exhaustive cases: none, all, K/N or rotating/N")
    parser.addoption("--repeats", action="store_true", help="also the cases that repeat others")
    parser.addoption("--costs", metavar="FILE", help="write the CPU seconds of each file there")


def pytest_configure(config: pytest.Config) -> None:
    """Parse the share, measure the cost."""
    text = config.getoption("--share")
    try:
        chosen = config.stash[share.SHARE] = share.parse(text)
    except ValueError:
        raise pytest.UsageError(f"--share {text}: expected none, all, K/N or rotating/N") from None
    config.option.share = str(chosen)  # workers take what this process took, at midnight too
    config.pluginmanager.register(cost.Costs(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not even import the files without that mark: it takes longer than to test."""
    if not config.option.markexpr.startswith("quick") or not collection_path.name.startswith("test_"):
        return None
    return None if "mark.quick" in collection_path.read_text(encoding="utf-8") else True


def pytest_report_header(config: pytest.Config) -> str:
    """Say which share, so that a run can be repeated."""
    chosen = config.stash[share.SHARE]
    return "" if chosen == share.NOTHING else f"exhaustive cases: --share {chosen}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Exhaustive cases by share; costly files first, so that no worker ends alone with one."""
    share.choose(config, items)
    limits = cost.budgets()
    items.sort(key=lambda item: -limits.get(item.nodeid.partition("::")[0], 0.0))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector need not walk through it again, test by test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def resident() -> float:
    """GiB of memory that this process holds; infinite where nothing says how much that is."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return float("inf")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What JAX compiled for a file is of little use to the next, and of all files it takes gigabytes."""
    if nextitem is not None and nextitem.path != item.path and resident() > ENOUGH:
        jax.clear_caches()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _path_as_it_was():
    """A side from a file may import its neighbours, which must not shadow what other tests import."""
    before = sys.path[:]
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    """No test leaves torch in another state for those behind it."""
    yield
    if torch := sys.modules.get("torch"):
        left = torch.is_grad_enabled(), torch.get_default_dtype()
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        assert left == (True, torch.float32)


@pytest.fixture
def x64():
    """JAX with 64-bit types for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny set of `tests.support.tiny_tfds`."""
    from tests.support.tiny_tfds import write_tiny_set

    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_set(folder)
    return folder
