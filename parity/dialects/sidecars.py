"""What the config files beside the weights say; whatever may be in them, as they come from strangers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from parity.dialects.dialect import Dialect
from vit_config import ConfigError, Preprocess
from vit_config.errors import USER_ERRORS

T = TypeVar("T")


def tell(dialect: Dialect, sidecars: Mapping[str, Any]) -> bool:
    """Whether they are this dialect's."""
    try:
        return dialect.settings is not None and dialect.settings.recognise(sidecars)
    except Exception:  # not of the form that its library writes, so it is not the library's
        return False


def fields(dialect: Dialect, sidecars: Mapping[str, Any]) -> dict[str, Any]:
    """The schema's fields that they state; none if they are not this dialect's.

    Raises:
        ConfigError: they state what no schema can say, or are not of the form that its library writes.
    """
    settings = dialect.settings
    if settings is None or not tell(dialect, sidecars):
        return {}
    return _guarded(lambda: settings.fields(sidecars))


def preprocess(dialect: Dialect, sidecars: Mapping[str, Any]) -> Preprocess | None:
    """How pixels are prepared, if they state it.

    Raises:
        ConfigError: see `fields`.
    """
    settings = dialect.settings
    if settings is None or not tell(dialect, sidecars):
        return None
    return _guarded(lambda: settings.preprocess(sidecars))


def _guarded(read: Callable[[], T]) -> T:
    try:
        return read()
    except USER_ERRORS:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"its config files have an entry of another kind than expected ({type(error).__name__}:"
            f" {reason})"
        ) from None
