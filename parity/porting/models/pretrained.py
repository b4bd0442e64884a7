"""Reading and writing folders in the Hugging Face Hub's form: weights, config files, a model card."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from parity.porting.models.files import load, save
from parity.porting.models.loaded import Loaded
from parity.porting.opening.hub import HUB, is_name
from parity.porting.opening.opened import open_checkpoint
from parity.porting.opening.provenance import Hop
from parity.porting.writing.conversion import Converted, convert
from vit_config import ConfigError, Preprocess, WeightsError
from vit_config.errors import first_line
from vit_config.files.atomic import beside, check_parent
from vit_config.files.places import place_all
from vit_config.pretrained import DType, Reading, Saving, hands_on
from vit_train.frameworks import Framework

if TYPE_CHECKING:
    from parity.porting.verification.verify import Verification

CARD = "README.md"
OPENED_BY = {
    "timm": ("timm", 'timm.create_model("{name}", pretrained=True)', "hf-hub:"),
    "hf": ("transformers", 'transformers.AutoModel.from_pretrained("{name}")', ""),
}
"""Library, call that opens a folder, and prefix of Hub names, by the first part of a dialect's name."""
OURS = ("vit-parity", 'parity.from_pretrained("{name}", framework="torch")', HUB)


@hands_on(Reading)
def from_pretrained(
    source: str | Path,
    *,
    framework: Framework | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    kernel: str = "auto",
    dtype: DType | None = None,
    **reading: Unpack[Reading],
) -> Any:
    """Load a model from a folder, a file, or a repository of the Hub; PyTorch's is in evaluation mode.

    The model keeps its preprocessing, licence and provenance; files saved from it state them again.

    Args:
        source: ``org/name``, or any source that `load` reads.
        framework: ``jax`` or ``torch``; None is the one that is installed.
        revision: a branch, a tag or a commit of the repository.
        token: the Hub's access token; default: that of the environment, ``HF_TOKEN``.
        cache_dir: the folder of downloads; default: the cache that all libraries of the Hub share.
        force_download: download even if the cache has the files.
        local_files_only: download nothing.
        kernel: how attention is computed, one of the twin's `kernels.KERNELS`.
        dtype: type of the parameters and of the computation; by default the weights' own type.
        reading: options of `read_checkpoint` that state what the checkpoint leaves open.

    Raises:
        ConfigError: `revision` is given and `source` is no repository; and see `load`.
        MissingFileError, WeightsError: see `load`.
    """
    name = str(source)
    if not Path(source).exists() and not is_name(source) and name.count("/") == 1:
        name = f"{HUB}{name}"
    if revision is not None:
        if not name.startswith(HUB) or Path(name).exists():
            raise ConfigError(f"{source}: revision = {revision!r} is of a repository; this is none")
        name = f"{name}@{revision}"
    opened = open_checkpoint(
        name,
        token=token,
        cache_dir=cache_dir,
        force_download=force_download,
        local_files_only=local_files_only,
    )
    return load(opened, framework=framework, kernel=kernel, dtype=dtype, **reading).model


def save_pretrained(
    model: Any,
    folder: str | Path,
    *,
    to: str = "timm",
    preprocess: Preprocess | None = None,
    name: str | None = None,
    verify: bool = False,
    force: bool = False,
) -> Converted:
    """Write a folder that `to`'s own library opens unchanged, with a model card.

    Args:
        model: a model of either twin, or a `Loaded`.
        folder: the folder to write, whole or not at all.
        to: a dialect, or a family of them: ``timm``, ``hf``; or ``parity``, this project's own.
        preprocess: how images are prepared; default: the model's own, from the file it was read from.
        name: the model's name on the card; default: the folder's name.
        verify: run the written weights in every framework and library that is installed, in float64, and
            put the table of errors on the card.
        force: replace an existing folder.

    Raises:
        ConfigError: the folder exists, or the dialect cannot hold the model; the field is named.
        WeightsError: the written weights do not agree with the model; the folder is not kept.
        MissingFileError: there is no folder to write in.
    """
    if not isinstance(folder, str | Path):
        raise ConfigError("the model stands first: save_pretrained(model, folder)")
    folder = Path(folder)
    check_parent(folder)
    if folder.exists() and not force:
        raise ConfigError(f"{folder}: already exists; give another path, or force=True to replace it")
    model = model.model if isinstance(model, Loaded) else model
    with beside(folder) as place:
        path = place / f"{type(model).__module__.partition('.')[0]}.safetensors"
        save(path, model, preprocess=preprocess)
        converted = convert(path, to=to, out=place / folder.name)
        verification = _verified(converted, folder) if verify else None
        text = "\n".join(card_lines(converted, name or folder.name, verification))
        (converted.path / CARD).write_text(text, encoding="utf-8")
        place_all([(converted.path, folder.absolute())])
    return replace(converted, path=folder)


@hands_on(Saving)
def push_to_hub(
    model: Any,
    repo_id: str,
    *,
    commit_message: str = "Add the model",
    private: bool | None = None,
    token: str | None = None,
    branch: str | None = None,
    create_pr: bool = False,
    **options: Unpack[Saving],
) -> str:
    """Write a model as `save_pretrained` does, and upload it to the Hub.

    Args:
        repo_id: ``org/name``; created if it does not exist.
        private: whether a created repository is private; None leaves it to the owner's settings.
        token: the Hub's access token; default: that of the environment, ``HF_TOKEN``.
        branch: the branch to commit to; default: the main one.
        create_pr: open a pull request instead of committing.
        options: options of `save_pretrained`: to, preprocess, verify.

    Returns:
        The URL of the commit.

    Raises:
        ConfigError: as `save_pretrained`, or the Hub refuses; the message quotes its error.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save_pretrained(model, folder, name=repo_id, **options)
        try:
            api.create_repo(repo_id, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
            )
        except Exception as error:  # each HTTP client raises its own errors
            raise ConfigError(f"{repo_id}: the Hub refused ({first_line(error)})") from None
    return str(done.commit_url)


def _verified(converted: Converted, folder: Path) -> Verification:
    from parity.porting.verification.verify import verify, write_verification

    verification = verify(converted)
    if not verification.passed:
        raise WeightsError(f"{folder}: not written, since it is not equal: {verification.problem}")
    write_verification(verification, converted.path)
    return verification


def card_lines(
    converted: Converted, name: str, verification: Verification | None = None
) -> Iterator[str]:
    """Yield the model card's lines: front matter for the Hub, how to open it, schema, provenance."""
    cfg, metadata = converted.config, converted.target.metadata
    library, call, prefix = OPENED_BY.get(converted.dialect.partition("-")[0], OURS)
    module = call.partition(".")[0]
    task = "image-classification" if cfg.num_classes else "image-feature-extraction"
    yield from ("---", f"library_name: {library}", f"pipeline_tag: {task}")
    if metadata.license is not None:
        yield f"license: {metadata.license}"
    yield from ("tags:", f"- {task}", "- vit-parity", "---", "", f"# {name}", "")
    yield from (
        "```python",
        f"import {module}" if module == "parity" else f"import parity, {module}",
        "",
    )
    yield f"model = {call.format(name=f'{prefix}{name}')}"
    yield f'twin = parity.from_pretrained("{HUB}{name}", framework="jax")  # the same function in Flax'
    yield from ("```", "")
    height, width = cfg.image_size
    yield (
        f"A Vision Transformer of {cfg.depth} blocks, width {cfg.hidden_size}, {cfg.num_heads} heads,"
        f" patches of {cfg.patch_size[0]}x{cfg.patch_size[1]}, images of"
        f" {height}x{width}x{cfg.in_channels}, {cfg.num_classes or 'no'} classes; activation {cfg.act},"
        f" LayerNorm epsilon {cfg.norm_eps:g}."
    )
    yield ""
    if metadata.pixels is None:
        yield "How images are prepared is not known."
    else:
        yield from ("| preprocessing | |", "|---|---|")
        for field in ("mean", "std", "interpolation", "crop_fraction", "crop_mode"):
            yield f"| {field} | {getattr(metadata.pixels, field)} |"
        if (names := metadata.class_names) is not None:
            yield from ("", f"Classes, in the order of the logits: {', '.join(map(str, names))}.")
    yield from ("", "Where the weights came from, oldest first:", "")
    yield from (_hop_line(hop) for hop in converted.hops)
    yield ""
    if verification is not None:
        yield from _table(verification)


def _table(verification: Verification) -> Iterator[str]:
    yield f"Logits in float64, compared with those of the {verification.reference}:"
    yield from ("", "| weights | run in | relative error | limit |", "|---|---|---|---|")
    for row in verification.rows:
        yield f"| {row.what} | {row.ran_in} | {row.error:.1e} | {row.limit:.0e} |"
    yield from (f"- not run: {note}" for note in verification.not_run)
    yield ""


def _hop_line(hop: Hop) -> str:
    done = f": {'; '.join(hop.done)}" if hop.done else ""
    return f"- `{hop.source}` ({hop.dialect}, {hop.container}, SHA-256 `{hop.digest[:16]}...`){done}"
