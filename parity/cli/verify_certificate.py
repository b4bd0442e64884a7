"""``parity verify-certificate``: verify that a certificate still holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.checking import data_folder
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError


@dataclass(frozen=True)
class VerifyCertificate:
    """Run the check of a certificate again, with the schema, recipe, seeds and types that it states, and
    compare: the verdict, the digests of the initial parameters, every level against its limit. Exit
    status: 0 verified, 1 not verified, 2 bad input, such as a certificate that was edited.
    """

    file: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE", help_behavior_hint="")
    ] = ()
    """Certificate that `parity check` or `parity check-steps` wrote. Its checkpoint is read from where
    it was, or from beside the certificate."""
    data_dir: Annotated[Path | None, shown_as("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")] = None
    """Folder of prepared data sets."""


def main(argv: list[str], prog: str = "parity verify-certificate") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(VerifyCertificate, argv, prog=prog)

    from vit_config.screen import screen

    if len(arguments.file) != 1:
        raise ConfigError(f"expected one certificate, got {len(arguments.file)}; {prog} --help explains")
    from parity.twins.certificate.verification_table import print_verification
    from parity.twins.certificate.verify import verify

    errors = screen(stderr=True)
    with errors.status("running the check again") as status:
        found = verify(
            arguments.file[0],
            data_dir=data_folder(arguments.data_dir),
            progress=lambda dtype, step: status.update(f"{dtype}: step {step}"),
        )
    print_verification(found)
    return 0 if found.passed else 1
