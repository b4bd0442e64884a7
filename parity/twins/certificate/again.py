"""Running a certificate's check again, with the same arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from parity.porting import hub
from parity.twins.certificate import facts
from parity.twins.certificate.format import Certificate, CheckpointFile
from parity.twins.certificate.function import of_function
from parity.twins.check import check_config, check_weights
from vit_config import DataError, Recipe, ViTConfig, WeightsError
from vit_config.errors import MissingFileError
from vit_config.job import Job

Progress = Callable[[str, int], None]
"""Function called with a type and the number of steps done in it."""


def run_again(
    certificate: Certificate, where: Path, *, data_dir: Path, progress: Progress
) -> Certificate:
    """Return the certificate that the same check would get today.

    Schema and recipe are the certificate's own, even if the preset has changed.

    Args:
        where: the certificate's file; a checkpoint that is not at its path is looked for beside it.
        data_dir: the folder of prepared data sets.

    Raises:
        MissingFileError: the checkpoint or the data set is not there.
        WeightsError: the checkpoint has another digest.
        DataError: the data set has another fingerprint.
        ConfigError: a schema or a recipe that this version does not know.
    """
    if certificate.kind == "training":
        return _training(certificate, where, data_dir, progress)
    arguments = certificate.arguments
    if certificate.checkpoint is not None:
        file = located(certificate.checkpoint, where)
        report = check_weights(
            file.path,
            dtypes=arguments.dtypes,
            batch_size=arguments.batch_size,
            seed=arguments.seed,
            precision=arguments.precision,
            device=arguments.device,
            fault=arguments.fault,
        )
        return of_function(report, arguments, file)
    report = check_config(
        config_of(certificate, where),
        subject=certificate.subject,
        dtypes=arguments.dtypes,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        precision=arguments.precision,
        device=arguments.device,
        token_offset=arguments.token_offset,
        fault=arguments.fault,
        wrong=arguments.wrong,
    )
    return of_function(report, arguments)


def config_of(certificate: Certificate, where: str | Path = "certificate") -> ViTConfig:
    """Return the schema that was checked."""
    return ViTConfig.from_json(json.dumps(certificate.config), where=f"{where}: config")


def recipe_of(certificate: Certificate, where: str | Path = "certificate") -> Recipe:
    """Return the recipe that was used for training."""
    return Recipe.from_json(json.dumps(certificate.recipe), where=f"{where}: recipe")


def located(stated: CheckpointFile, where: Path) -> CheckpointFile:
    """Return the checkpoint that was checked, where it is now.

    Raises:
        MissingFileError: the checkpoint is neither where it was nor beside the certificate.
        WeightsError: another checkpoint is there.
    """
    source = stated.path
    if not hub.is_name(source) and not Path(source).exists():
        source = str(where.parent / Path(source).name)
        if not Path(source).exists():
            raise MissingFileError(
                f"{stated.path}: the checkpoint of {where} is not there, and not beside it; put it back"
            )
    found = facts.checkpoint_file(source)
    if found.sha256 != stated.sha256:
        raise WeightsError(
            f"{source}: its SHA-256 is {found.sha256[:16]}..., {where} is of a file with"
            f" {stated.sha256[:16]}...; get that one"
        )
    return found


def _training(certificate: Certificate, where: Path, data_dir: Path, progress: Progress) -> Certificate:
    from parity.twins.certificate.training import of_training
    from parity.twins.steps.check_steps import check_steps

    arguments, data = certificate.arguments, certificate.data
    fingerprint = facts.fingerprint(data.name, data_dir)
    if fingerprint != data.fingerprint:
        raise DataError(
            f"{data.name} in {data_dir}: its fingerprint is {str(fingerprint)[:16]}..., {where} is of a"
            f" set with {str(data.fingerprint)[:16]}...; get that one"
        )
    report = check_steps(
        certificate.subject,
        Job(config_of(certificate, where), recipe_of(certificate, where), data.name),
        arguments.steps or 0,
        data_dir=data_dir,
        dtypes=arguments.dtypes,
        precision=arguments.precision,
        device=arguments.device,
        fault=arguments.fault,
        progress=progress,
    )
    return of_training(report, arguments, fingerprint)
