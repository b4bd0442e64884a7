"""Names on the Hugging Face Hub in place of paths: ``hf-hub:org/name[@revision]``, ``timm:name.tag``.

A named repository is downloaded once, into the cache that all libraries of the Hub share; ``HF_HOME``,
``HF_HUB_OFFLINE``, ``HF_TOKEN`` and the like apply. An existing path is never taken for a name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from parity.porting.formats.suffixes import NAMED
from parity.porting.formats.weights_folder import SIDECARS, TOKENIZER, WEIGHTS
from vit_config import PRESETS, ConfigError, MissingFileError, preset_tags
from vit_config.errors import first_line
from vit_config.presets import from_timm

HUB, TIMM = "hf-hub:", "timm:"


class Repository(NamedTuple):
    """A repository on the Hub."""

    id: str
    """``org/name``."""
    revision: str | None
    """A branch, a tag or a commit; None means the newest."""
    preset: str | None
    """The weights' preset, if the name says it."""


class Located(NamedTuple):
    """A checkpoint's path and name."""

    path: Path
    name: str
    """Name for messages and provenance: the file's; or the repository and the commit."""
    preset: str | None
    """The weights' preset, if a ``timm:`` name says it."""


def is_name(source: str | Path) -> bool:
    """Return whether `source` is a name on the Hub rather than a path."""
    return str(source).startswith((HUB, TIMM)) and not Path(source).exists()


def is_path(subject: str) -> bool:
    """Return whether `subject` means a file, a folder or a name on the Hub, rather than a preset."""
    known = Path(subject).exists() or is_name(subject)
    return known or "/" in subject or subject.endswith(NAMED)


def parse(name: str | Path) -> Repository:
    """Parse a name on the Hub.

    Raises:
        ConfigError: the name is malformed, or timm has no such weights on the Hub.
    """
    name = str(name)
    if name.startswith(TIMM):
        return _of_timm(name)
    rest, at, revision = name.removeprefix(HUB).partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", rest) or (at and not revision):
        raise ConfigError(f"{name}: expected {HUB}ORG/NAME or {HUB}ORG/NAME@REVISION")
    return Repository(rest, revision or None, None)


def locate(source: str | Path, **downloading: Any) -> Located:
    """Locate a checkpoint; files of a name on the Hub are downloaded unless the cache has them.

    Only config files and one set of weights are downloaded: safetensors, if there are any.

    Args:
        downloading: options of `huggingface_hub.snapshot_download` such as ``token`` or ``cache_dir``;
            ignored for a path.

    Raises:
        ConfigError: see `parse`.
        MissingFileError: there is no such repository or revision, it cannot be seen without a token, it
            has no weights, or the Hub cannot be reached and the cache does not have it.
    """
    if not is_name(source):
        path = Path(source)
        if not path.exists():
            _refuse_bare(str(source), path)
        return Located(path, path.name, None)
    repository = parse(source)
    revision = repository.revision
    for weights in WEIGHTS:
        files = [*SIDECARS, *TOKENIZER, *_files(weights)]
        request = {"revision": revision, "allow_patterns": files, **downloading}
        folder = _download(str(source), repository.id, request)
        if (folder / weights).is_file():
            return Located(folder, f"{HUB}{repository.id}@{folder.name}", repository.preset)
        revision = folder.name  # the commit: later downloads take the same one
    raise MissingFileError(
        f"{source}: has none of {', '.join(WEIGHTS)}; download its file and give the path"
    )


def _refuse_bare(name: str, path: Path) -> None:
    """Refuse what looks like a name without its prefix. MissingFileError: says how it is written."""
    if web := re.match(r"https?:/+(?:www\.)?(huggingface\.co/(?=[\w.-]+/[\w.-]+))?", name):
        there = "/".join(name[web.end() :].split("/")[:2])
        way = f"on the Hub it is {HUB}{there}" if web[1] else "download it, and give the file's path"
        raise MissingFileError(f"{name}: is an address, which is not read; {way}")
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not path.parent.exists():
        raise MissingFileError(f"{name}: no such file or folder; on the Hub it would be {HUB}{name}")
    if name.partition(".")[0] in PRESETS:
        of_timm = f"timm's weights of it are {TIMM}{name}" if preset_tags(name) else "it has no weights"
        raise MissingFileError(f"{name}: no such file or folder; it is a preset, and {of_timm}")


def _of_timm(name: str) -> Repository:
    given = name.removeprefix(TIMM)
    tags = preset_tags(given)
    architecture, _, tag = given.partition(".")
    if not tags:
        raise ConfigError(f"{name}: has no pretrained weights")
    tag = tag or tags[0]
    weights = from_timm.tags(architecture)[tag]["weights"]
    if weights is None:
        raise ConfigError(f"{name}: timm has no weights of the tag {tag!r}, only its preprocessing")
    if weights == "url":
        raise ConfigError(
            f"{name}: its weights are not on the Hub but on a server of their authors; download the file"
            f" and give its path with --like {architecture}.{tag}"
        )
    return Repository(weights, None, f"{architecture}.{tag}")


def _files(weights: str) -> list[str]:
    """Return the file names of a set of weights: one file, or an index and the pattern of its shards."""
    stem, index, _ = weights.partition(".index.json")
    if not index:
        return [weights]
    base, _, suffix = stem.rpartition(".")
    return [weights, f"{base}-*-of-*.{suffix}"]


def _download(name: str, repository: str, options: dict[str, Any]) -> Path:
    import huggingface_hub
    from huggingface_hub import constants, errors

    where = f"https://huggingface.co/{repository}"
    try:
        return Path(huggingface_hub.snapshot_download(repository, **options))
    except errors.GatedRepoError:
        reason = f"is gated; ask for access at {where} and set HF_TOKEN to a token that has it"
    except errors.RevisionNotFoundError:
        reason = f"has no revision {options['revision']!r}; {where}/commits/main shows all"
    except errors.RepositoryNotFoundError:
        reason = f"there is no such repository at {where}, or it is private: set HF_TOKEN then"
    except errors.LocalEntryNotFoundError as error:
        cache = options.get("cache_dir") or constants.HF_HUB_CACHE
        why = _unreachable(error, local_only=options.get("local_files_only", False))
        reason = f"is not (or not whole) in {cache}, and the Hub {why}"
    except errors.HFValidationError as error:
        raise ConfigError(f"{name}: {first_line(error)}") from None
    except Exception as error:  # each HTTP client raises its own errors
        reason = f"cannot be downloaded ({type(error).__name__}: {first_line(error)})"
    raise MissingFileError(f"{name}: {reason}")


def _unreachable(error: Any, *, local_only: bool) -> str:
    from huggingface_hub import constants, errors

    if local_only:
        return "was not asked (local_files_only)"
    if constants.HF_HUB_OFFLINE or isinstance(error.__cause__, errors.OfflineModeIsEnabled):
        return "is switched off (HF_HUB_OFFLINE is set)"
    return "cannot be reached; try again with a network"
