"""Folders as the Hugging Face Hub has them: weights, a library's config files, and a model card."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.porting.conversion import Converted, convert
from parity.porting.files import load, save
from parity.porting.hub import HUB, first_line, is_name
from parity.porting.loaded import Framework, Loaded
from parity.porting.provenance import Hop
from vit_config import ConfigError, Preprocess
from vit_config.files.atomic import write_atomically

CARD = "README.md"
OPENED_BY = {
    "timm": ("timm", 'timm.create_model("{name}", pretrained=True)', "hf-hub:"),
    "hf": ("transformers", 'transformers.AutoModel.from_pretrained("{name}")', ""),
}
"""By the first part of a dialect's name: the library, the call that opens a folder, and its prefix for
names of the Hub."""


def from_pretrained(source: str | Path, *, framework: Framework, **reading: Any) -> Any:
    """A model from a folder, a file, or a repository of the Hub (``org/name``); see `load`."""
    if not Path(source).exists() and not is_name(source) and str(source).count("/") == 1:
        source = f"{HUB}{source}"
    return load(source, framework=framework, **reading).model


def save_pretrained(
    model: Any,
    folder: str | Path,
    *,
    to: str = "timm",
    preprocess: Preprocess | None = None,
    name: str | None = None,
    force: bool = False,
) -> Converted:
    """Write a folder that `to`'s own library opens unchanged, and a card that says what it is.

    Args:
        model: either twin's, or what `load` returned, which knows how images are prepared.
        folder: written whole or not at all.
        to: a dialect, or a family of them: ``timm``, ``hf``; or ``parity``, this project's own.
        preprocess: how images are prepared, where the model does not know.
        name: how the card calls the model; default: the folder's name.
        force: replace a folder that exists.

    Raises:
        ConfigError: the folder exists, or the dialect cannot hold the model; the field is named.
    """
    folder = Path(folder)
    if isinstance(model, Loaded):
        preprocess, model = preprocess or model.preprocess, model.model
    with tempfile.TemporaryDirectory() as place:
        held = Path(place) / f"{type(model).__module__.partition('.')[0]}.safetensors"
        save(held, model, preprocess=preprocess)
        converted = convert(held, to=to, out=folder, force=force)
    text = "\n".join(card_lines(converted, name or folder.name))
    write_atomically(folder / CARD, text.encode())
    return converted


def push_to_hub(
    model: Any,
    repository: str,
    *,
    private: bool = False,
    token: str | None = None,
    message: str = "Add the model",
    **options: Any,
) -> str:
    """Write as `save_pretrained` does, and upload.

    Args:
        repository: ``org/name``; made if it does not exist.
        options: of `save_pretrained`: to, preprocess.

    Returns:
        The address of the commit.

    Raises:
        ConfigError: as `save_pretrained`, or the Hub refuses; the message is what it says.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save_pretrained(model, folder, name=repository, **options)
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
        except Exception as error:  # the clients of HTTP each have their own
            raise ConfigError(f"{repository}: the Hub refused ({first_line(error)})") from None
    return str(done.commit_url)


def card_lines(converted: Converted, name: str) -> Iterator[str]:
    """The model card: front matter as the Hub reads it, how to open it, what it is, where it is from."""
    cfg, metadata = converted.config, converted.target.metadata
    library, call, prefix = OPENED_BY.get(
        converted.dialect.partition("-")[0],
        ("vit-parity", 'parity.load("{name}", framework="torch")', HUB),
    )
    task = "image-classification" if cfg.num_classes else "image-feature-extraction"
    yield from ("---", f"library_name: {library}", f"pipeline_tag: {task}")
    if metadata.license is not None:
        yield f"license: {metadata.license}"
    yield from ("tags:", f"- {task}", "- vit-parity", "---", "", f"# {name}", "")
    yield "```python"
    yield call.format(name=f"{prefix}{name}")
    yield f'parity.load("{HUB}{name}", framework="jax")  # the same function in Flax'
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
    yield from ("", "Where the weights came from, oldest first:", "")
    yield from (_hop_line(hop) for hop in converted.hops)
    yield ""


def _hop_line(hop: Hop) -> str:
    done = f": {'; '.join(hop.done)}" if hop.done else ""
    return f"- `{hop.source}` ({hop.dialect}, {hop.container}, SHA-256 `{hop.digest[:16]}...`){done}"
