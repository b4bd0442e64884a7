"""The files of a certificate, which appear together or not at all."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from parity.twins.certificate.format import Certificate
from parity.twins.certificate.markdown import page
from parity.twins.certificate.picture import draw_levels
from parity.twins.certificate.seal import to_text
from parity.twins.steps.check import StepsReport
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file, check_writable

PICTURES = {
    "levels": "the worst error of each level and its limit",
    "curves": "the distance of the runs, and of the shadows",
}
"""What pictures there may be, by the end of their names."""


@dataclass(frozen=True)
class Destination:
    """Where a certificate is to be written."""

    path: Path
    """Of the JSON file; the others lie beside it."""
    force: bool

    @property
    def page(self) -> Path:
        """The Markdown file."""
        return self.path.with_suffix(".md")

    def picture(self, name: str) -> Path:
        """One of `PICTURES`."""
        return self.path.with_name(f"{self.path.stem}-{name}.png")

    @property
    def all(self) -> list[Path]:
        """Every file that a certificate may have."""
        return [self.path, self.page, *(self.picture(name) for name in PICTURES)]


def destination(path: Path, *, force: bool) -> Destination:
    """Refuse what cannot be written, before anything is computed.

    Args:
        force: replace the files of a certificate that is there.

    Raises:
        ConfigError: another ending than .json, or files that are there already.
        MissingFileError: there is no such folder.
        ModuleNotFoundError: nothing to draw pictures with.
    """
    import matplotlib  # noqa: F401

    if path.suffix != ".json":
        raise ConfigError(f"{path}: a certificate ends in .json; .md and pictures are put beside it")
    found = Destination(path, force)
    for each in found.all:
        check_writable(each)
        if each.exists() and not force:
            raise ConfigError(f"{each}: exists already; give another path, or --force to replace it")
    return found


def write(certificate: Certificate, where: Destination, report: StepsReport | None = None) -> list[Path]:
    """Write the certificate, its page and its pictures.

    Args:
        report: of a training run, whose curves are drawn.

    Returns:
        The files, the certificate first.
    """
    pictures = {"levels": draw_levels(certificate)}
    if report is not None:
        pictures["curves"] = _curves(report)
    shown = {where.picture(name).name: PICTURES[name] for name in pictures}
    contents = {
        where.path: to_text(certificate).encode(),
        where.page: page(certificate, where.path.name, shown).encode(),
        **{where.picture(name): drawn for name, drawn in pictures.items()},
    }
    with ExitStack() as stack:  # leaving it names them in reverse: the certificate last
        for path, content in contents.items():
            stack.enter_context(atomic_file(path, force=where.force)).write(content)
    for path in where.all:
        if path not in contents:  # of the certificate that was replaced
            path.unlink(missing_ok=True)
    return list(contents)


def _curves(report: StepsReport) -> bytes:
    from parity.twins.steps.report import draw_steps

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "curves.png")
        draw_steps(report, path)
        return path.read_bytes()
