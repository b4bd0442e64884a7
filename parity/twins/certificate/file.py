"""The file of a certificate: JSON with a seal, which shows whether the file was edited.

The seal is for accidents and for small temptations: a forger can seal the file again. Verifying a
certificate is what exposes a forged one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parity.twins.certificate.format import FORMAT, VERSION, Certificate
from vit_config import ConfigError, WeightsError
from vit_config.errors import MissingFileError
from vit_config.files.atomic import atomic_file, check_writable
from vit_config.files.foreign import parse_json, read_text, without_repeats
from vit_config.files.json_digest import json_digest

SEAL = "seal"


def check_destination(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, before anything is computed.

    Args:
        force: replace an existing certificate.

    Raises:
        ConfigError: the path does not end in .json, or the file exists already.
        MissingFileError: there is no such folder.
    """
    if path.suffix != ".json":
        raise ConfigError(f"{path}: a certificate ends in .json")
    check_writable(path)
    if path.exists() and not force:
        raise ConfigError(f"{path}: already exists; give another path, or --force to replace it")


def write_certificate(certificate: Certificate, path: Path, *, force: bool) -> None:
    """Write a certificate with its seal, whole or not at all."""
    content = certificate.model_dump(mode="json")
    content[SEAL] = json_digest(content, compact=True)
    with atomic_file(path, force=force) as file:
        file.write((json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def read_certificate(path: Path) -> Certificate:
    """Read a certificate, and check that nobody edited it.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: the file is no certificate, or is of another version, or was edited.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give a certificate that parity check wrote")
    try:
        content = parse_json(read_text(path), pairs=without_repeats)
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise WeightsError(f"{path}: not a certificate, not valid JSON ({said})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WeightsError(f'{path}: not a certificate: it does not say "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise WeightsError(
            f"{path}: certificate version {content.get('version')!r}, this version reads {VERSION};"
            " use the version of the package that wrote it"
        )
    _check_seal(path, content)
    try:
        certificate = Certificate(**content)
    except ValueError as error:
        raise WeightsError(f"{path}: not a whole certificate: {error}") from None
    for name in ("config", "recipe"):
        value, stated = getattr(certificate, name), getattr(certificate, f"{name}_sha256")
        if stated != (None if value is None else json_digest(value, compact=True)):
            raise WeightsError(f"{path}: {name}_sha256 is not the digest of {name}; make it again")
    return certificate


def _check_seal(path: Path, content: dict[str, Any]) -> None:
    stated = content.pop(SEAL, None)
    try:
        found = json_digest(content, compact=True)
    except ValueError:  # NaN or Infinity, which are never written here
        found = ""
    if stated != found:
        raise WeightsError(
            f"{path}: its seal is {_short(stated)}, but its content has {_short(found)}: it was edited"
            " after it was written; get the original, or make it again"
        )


def _short(digest: Any) -> str:
    return f"{digest[:16]}..." if isinstance(digest, str) and digest else "none"
