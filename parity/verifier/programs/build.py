"""Building of the model and the inputs that a user's name stands for."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from parity.measure.redraw import branch_norms, random_batch, redraw
from parity.verifier.programs.built import watch_building
from parity.verifier.programs.callables import is_a
from parity.verifier.programs.files import is_program, program_with_images
from parity.verifier.programs.mistakes import in_one_line, refuse_arguments
from parity.verifier.programs.sides import OfWeights
from vit_config import PRESETS, ConfigError, MissingFileError, ViTConfig, preset
from vit_config.base import Schema
from vit_config.parameters import parameters


class BuildOrder(Schema, frozen=True):
    """What to build and how to run it; may be sent to another process."""

    name: str
    """Preset, checkpoint, ``module:function`` or ``file.py:function``; ``jax:NAME`` or ``torch:NAME`` is
    one twin of a preset or of a checkpoint; or a program in a file, see `files`."""
    twin: str = "torch"
    """Twin to build if the name does not say."""
    batch_size: int = 2
    seed: int = 0
    """Seed of a preset's weights and of the images."""
    run_programs: bool = False
    """Whether to open an archive of torch.export even if that may run what is in it."""

    def of_images(self, count: int | None) -> Self:
        """Return the same order for a number of images; None keeps it."""
        return self if count is None else self.replace(batch_size=count)


def build_from(order: BuildOrder) -> Any:
    """Build what an order names: the model and its inputs, or whatever a user's function returns.

    Raises:
        ConfigError, MissingFileError, WeightsError, InputError: there is no such thing, or it cannot be
            run.
    """
    if is_program(order.name):
        how = order.batch_size, order.seed
        return program_with_images(order.name, *how, trusted=order.run_programs)
    twin, colon, name = order.name.partition(":")
    if colon and twin in ("jax", "torch"):
        return _twin(order, name, twin)
    if is_function(order.name):
        return _with_images(built_by(order.name))
    return _twin(order, order.name, order.twin)


def build_together(makers: Sequence[Callable[[int | None], Any]], names: Sequence[str]) -> list[Any]:
    """Build the sides of a comparison; files whose batch size is fixed come first, and decide it.

    Args:
        makers: build a side each, given a number of images; None leaves it as it was ordered.
        names: what each is called; a program in a file by its path.
    """
    batch: int | None = None
    built: list[Any] = [None] * len(makers)
    for side in sorted(range(len(makers)), key=lambda side: not is_program(names[side])):
        built[side] = makers[side](batch)
        if is_program(names[side]) and isinstance(built[side], tuple):
            batch = len(built[side][1])
    return built


def is_function(name: str) -> bool:
    """Return whether a name is ``module:function`` or ``file.py:function``."""
    module, colon, function = name.rpartition(":")
    return (
        bool(colon) and function.isidentifier() and module not in ("", "jax", "torch", "timm", "hf-hub")
    )


def _twin(order: BuildOrder, name: str, twin: str) -> Any:
    cfg, arrays = _weights(order, name)
    images = random_batch(cfg, order.batch_size, order.seed).images  # (B, H, W, C)
    if twin == "torch":
        from vit_torch import from_arrays

        model = from_arrays(cfg, arrays, kernel="reference")
        return OfWeights((model, images.transpose(0, 3, 1, 2)))
    import jax

    from vit_jax import from_arrays

    with jax.enable_x64(True):
        return OfWeights((from_arrays(cfg, arrays, kernel="reference"), images))


def _with_images(made: Any) -> Any:
    """Add random images to a model of this project that was returned without inputs."""
    cfg = getattr(made, "cfg", None)
    if not isinstance(cfg, ViTConfig):
        return made
    images = random_batch(cfg, 2, seed=0).images  # (B, H, W, C)
    return made, images.transpose(0, 3, 1, 2) if is_a(made, "torch") else images


def _weights(order: BuildOrder, name: str) -> tuple[ViTConfig, dict[str, Any]]:
    if name in PRESETS:
        cfg = preset(name)
        norms = branch_norms(cfg)
        return cfg, {
            each: redraw(each, spec.kind, spec.shape, order.seed, branch_norms=norms)
            for each, spec in parameters(cfg).items()
        }
    from parity.porting.opening.hub import is_path
    from parity.porting.reading.checkpoint import read_checkpoint

    if not is_path(name):
        preset(name)  # raises, with the nearest names
    stored = read_checkpoint(name)
    return stored.config, {each: array.load() for each, array in stored.arrays.items()}


def built_by(name: str) -> Any:
    """Call the function that ``module:function`` or ``file.py:function`` names, and return its result.

    Raises:
        ConfigError, MissingFileError: there is no such module, file or function.
        InputError: the function needs arguments, or it fails.
    """
    with in_one_line(name), watch_building():
        function = called_function(name)
        refuse_arguments(name, function)
        return function()


def called_function(name: str) -> Callable[[], Any]:
    """Return the function that ``module:function`` or ``file.py:function`` names.

    Raises:
        ConfigError, MissingFileError: there is no such module, file or function.
    """
    where, _, function = name.rpartition(":")
    try:
        module = _module(where)
    except ModuleNotFoundError as error:
        if error.name and where.split(".")[0] == error.name.split(".")[0]:
            raise MissingFileError(f"{name}: no module is named {where}") from None
        raise
    called = getattr(module, function, None)
    if not callable(called):
        functions = [each for each, value in vars(module).items() if callable(value)]
        near = difflib.get_close_matches(function, functions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{name}: {where} has no function {function}{hint}")
    return called


def _module(where: str) -> Any:
    """Import a module; a file may import the files beside it, as with `python FILE.py`."""
    if not where.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(where)
    path = Path(where)
    if not path.is_file():
        raise MissingFileError(f"{where}: no such file; expected file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{where}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _beside(path.resolve().parent)
    spec.loader.exec_module(module)
    return module


def _beside(folder: Path) -> None:
    """Let a file import the files of its folder, and forget files of the same names that were imported
    from another such folder."""
    if str(folder) in sys.path[:1]:
        return
    sys.path.insert(0, str(folder))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        own = folder / f"{name}.py"
        if file and own.is_file() and Path(file) != own and Path(file).parent in _FOLDERS:
            del sys.modules[name]
    _FOLDERS.add(folder)


_FOLDERS: set[Path] = set()
"""Folders whose files were imported by their paths."""
