"""Putting a fault into the live model code of one twin, and taking it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from parity.faults.registry import Fault, check_needs, parse
from parity.faults.twin import Here, Twin, operations_of
from vit_config import ConfigError, ViTConfig


def inject(text: str | None, cfg: ViTConfig) -> AbstractContextManager[None]:
    """Inject a fault into the model code inside the context; None injects nothing.

    Args:
        text: ``NAME`` puts it into its own twin, in every block; ``NAME@jax`` into that twin;
            ``NAME@torch:2`` into block 2 alone.
        cfg: the schema of the models that will run.

    Raises:
        ConfigError: there is no such fault, or a model of this schema cannot have it.
    """
    if text is None:
        return nullcontext()
    injection = parse(text)
    fault, block = injection.fault, injection.block
    check_needs(fault, cfg)
    if block is not None and block >= cfg.depth:
        raise ConfigError(
            f"the fault {fault.name!r} cannot be in block {block} where depth = {cfg.depth}"
        )
    wrong = operations_of(injection.twin)
    tree = dict(wrong.modules(wrong.abstract_model(cfg)))
    blocks = range(cfg.depth) if block is None else (block,)
    paths = [place.format(i=i) for place in fault.at for i in blocks]
    kinds = {path: type(tree[path]) for path in paths if path in tree}
    if not kinds:
        raise ConfigError(
            f"the fault {fault.name!r} has nothing to break in a model without {' or '.join(fault.at)}"
        )
    return _patched(fault, wrong, kinds)


@contextmanager
def _patched(fault: Fault, wrong: Twin, kinds: Mapping[str, type]) -> Iterator[None]:
    """Have `fault` stand in for the modules at these paths, of these classes, in every model that runs.

    A module is identified by its place in the running model: JAX makes a new model out of parameters
    whenever it traces one.
    """
    running: list[dict[int, Here]] = []  # the modules of the models that are being called, by identity
    method = fault.method or wrong.call

    def stand_in(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            here = next((known[id(module)] for known in running if id(module) in known), None)
            if here is None or here.path not in kinds:
                return original(module, *args, **kwargs)
            return fault.apply(here, original.__get__(module), *args, **kwargs)

        return call

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            modules = dict(wrong.modules(model))
            known = {id(module): Here(wrong, path, modules) for path, module in modules.items()}
            running.append(known)
            try:
                return original(model, *args, **kwargs)
            finally:
                running[:] = (each for each in running if each is not known)

        return call

    # look methods up through the bases before any is replaced
    originals = {kind: getattr(kind, method) for kind in dict.fromkeys(kinds.values())}
    with ExitStack() as stack:
        for kind, original in originals.items():
            stack.enter_context(mock.patch.object(kind, method, stand_in(original)))
        outermost = enter(getattr(wrong.model, wrong.call))
        stack.enter_context(mock.patch.object(wrong.model, wrong.call, outermost))
        yield
