"""The files that a comparison is written to; the same flags for every command that compares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from parity.cli.support.reading import shown_as
from vit_config.files.atomic import write_atomically

if TYPE_CHECKING:
    from parity.verifier.report import Report


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """Files to write."""

    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file; docs/reports.md describes the fields."""
    html: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the report as one HTML page, which loads nothing else."""

    def write(self, report: Report) -> None:
        """Write the files that were asked for."""
        from parity.measure.shown import write_json
        from parity.verifier.report.page import to_html

        if self.json is not None:
            write_json(self.json, report.to_dict())
        if self.html is not None:
            write_atomically(self.html, to_html(report).encode())
