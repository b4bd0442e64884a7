"""Writes the results of a fleet as JUnit XML, which every CI shows."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vit_config.files.atomic import write_atomically


@dataclass(frozen=True)
class Result:
    """The result of one checkpoint's conversion."""

    row: str
    """Path of the checkpoint in the manifest."""
    status: Literal["done", "unchanged", "skipped", "asked", "failed"]
    """``unchanged``: an earlier run converted it; ``asked``: fields have to be stated first."""
    output: str
    seconds: float = 0.0
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the checkpoint is converted, or was to be skipped."""
        return self.status not in ("asked", "failed")


def write_junit(path: Path, results: Sequence[Result], *, to: str) -> None:
    """Write one test case per checkpoint.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: `path` is a folder.
    """
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=f"parity convert --to {to}",
        tests=str(len(results)),
        failures=str(sum(not each.passed for each in results)),
        errors="0",
        skipped=str(sum(each.status == "skipped" for each in results)),
        time=f"{sum(each.seconds for each in results):.3f}",
    )
    for each in results:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"parity.convert.{to}",
            name=_xml(each.row),
            time=f"{each.seconds:.3f}",
        )
        if each.status == "skipped":
            ET.SubElement(case, "skipped")
        elif not each.passed:
            ET.SubElement(case, "failure", type=each.status, message=_xml(each.error or ""))
    ET.indent(suites)
    content = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    write_atomically(path, content + b"\n")


def _xml(text: str) -> str:
    """Replace the characters that XML cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
