"""Starts a training run from a checkpoint of any dialect: which weights fit, which are initialised."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transform import resize_model
from parity.porting.models.lora import read_lora
from parity.porting.opening.provenance import Hop, digest_of, versions
from parity.porting.reading.adapters import weights_of
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.recognition.known import word
from vit_config import ViTConfig, Weights, WeightsError
from vit_config.adapters import is_adapter
from vit_config.errors import USER_ERRORS, UnstatedError
from vit_config.lora import Lora
from vit_config.parameters import parameters
from vit_train.distilling import TeacherWeights
from vit_train.folder.start import Start

HEAD = ("head.", "head_dist.")
AFTER = ("norm.", "fc_norm.", "attn_pool.", "pre_logits.", *HEAD)
"""Prefixes of parameters after the blocks: another task may need others."""
FREE = frozenset(
    {
        *("image_size", "dynamic_image_size", "init", "num_classes", "head_bias"),
        *("dropout_embed", "dropout_patch", "dropout_attention", "dropout_attention_out"),
        *("dropout_mlp_inner", "dropout_mlp_outer", "dropout_head", "stochastic_depth"),
        *("final_norm", "pool", "pool_prefix", "pool_num_heads", "pool_mlp_dim"),
        *("head_hidden", "head_activation"),
    }
)
"""Fields of the schema in which a start point may differ from the model."""


def read_start(
    source: str,
    cfg: ViTConfig,
    *,
    part: str | None = None,
    new_head: bool = False,
    adapter: str | None = None,
) -> Start:
    """Fit the weights of a checkpoint to a model.

    Positions are resampled to another image size by the rule of the source's schema. The head is
    initialised if its shape differs; so are parameters after the blocks that the file does not have.
    Fields that the file leaves open, as a bare state dict does, are taken from the model.

    Args:
        source: a file or folder of any dialect, or a name on the Hub.
        part: the model to take from a file that has several, such as ``state_dict_ema``.
        new_head: initialise the head even if it fits.
        adapter: folder of a LoRA that PEFT trained on the source, to go on with.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: the file is no checkpoint of a known dialect, or does not fit: the message names
            every difference, with both values or both shapes.
        ConfigError: see `read_checkpoint`.
    """
    checkpoint, stated = _read_as(source, part, cfg)
    state = ModelState(checkpoint.config, checkpoint.arrays)
    if not (problems := _differing_fields(checkpoint.config, cfg)):
        state = resize_model(state, cfg.image_size)
    in_file = {name: stored.shape for name, stored in state.arrays.items()}
    shapes = {name: each.shape for name, each in parameters(cfg).items()}
    drawn = [n for n in shapes if n not in in_file or (n.startswith(HEAD) and new_head)]
    drawn += [n for n in shapes if n not in drawn and n.startswith(HEAD) and shapes[n] != in_file[n]]
    left = [name for name in in_file if name not in shapes or name in drawn]
    problems += _misfits(in_file, shapes, drawn, left)
    if problems:
        todo = "give the file's values as --model.FIELD, or none, as --init gives them"
        if checkpoint.config.in_channels != (count := cfg.in_channels):
            todo = f"`parity convert {source} OUT --to parity --channels {count} --by RULE` changes it"
        raise WeightsError(f"--init {source}: does not fit the model: {'; '.join(problems)}; {todo}")
    carried = {} if adapter is None else read_lora(checkpoint, adapter)[1]
    carried = {
        name: each
        for name, each in carried.items()
        if is_adapter(name) or (each.shape == shapes.get(name) and not new_head)
    }
    drawn = [name for name in drawn if name not in carried]
    arrays = {
        name: state.arrays[name].load() for name in shapes if name not in drawn and name not in carried
    }
    account = (
        f"start point {checkpoint.name} ({checkpoint.dialect.name}): {len(arrays)} of the model's"
        f" {len(shapes)} tensors are used",
        *stated,
        *map(_said_in_training, checkpoint.notes),
        *state.said,
        *_listed("drawn anew", shapes, [name for name in shapes if name in drawn]),
        *_listed("left out", in_file, left),
        *([] if adapter is None else [f"goes on with the LoRA of {Path(adapter).name}"]),
    )
    files = checkpoint.container.files
    digest = digest_of([*files, *(() if adapter is None else (weights_of(Path(adapter)),))])
    hop = _hop(checkpoint, digest, account[1:])
    return Start(
        name=source,
        digest=digest,
        part=part,
        new_head=new_head,
        arrays={**arrays, **carried},
        adapter=adapter,
        preprocess=_preprocess(checkpoint, cfg),
        account=account,
        provenance=tuple(each.to_dict() for each in (*checkpoint.hops, hop)),
    )


def start_lora(source: str, cfg: ViTConfig, adapter: str, *, part: str | None = None) -> Lora:
    """Read which layers a LoRA of PEFT adapts, given the checkpoint that it was trained on.

    Raises:
        MissingFileError, WeightsError, ConfigError: see `parity.porting.models.lora.read_lora`.
    """
    return read_lora(_read_as(source, part, cfg)[0], adapter)[0]


def read_teacher(source: str) -> TeacherWeights:
    """Read a trained model as the teacher of a distillation.

    Args:
        source: a file or folder of any dialect, or a name on the Hub.

    Raises:
        MissingFileError, WeightsError, ConfigError: see `read_checkpoint`.
    """
    advice = f"`parity convert {source} OUT --to parity --set FIELD=VALUE ...` states them"
    with _advising(f"--teacher {source}", advice):
        checkpoint = read_checkpoint(source)
    arrays = {name: stored.load() for name, stored in checkpoint.arrays.items()}
    weights = Weights(checkpoint.config, checkpoint.preprocess, arrays)
    return TeacherWeights(source, digest_of(checkpoint.container.files), weights)


def start_config(source: str, *, part: str | None = None, adapter: str | None = None) -> ViTConfig:
    """Read a checkpoint's schema, for the defaults of the model's flags; no tensor is read.

    Args:
        adapter: folder of a LoRA, whose head may have other classes.

    Raises:
        UnstatedError: the file leaves fields of the schema open; a preset has to supply them.
    """
    advice = "add --preset, and what differs from it as --model.FIELD"
    with _in_flags_of_training(), _advising(f"--init {source}", advice):
        return read_checkpoint(source, part=part, adapter=adapter).config


def _read_as(source: str, part: str | None, cfg: ViTConfig) -> tuple[Checkpoint, list[str]]:
    """Read a checkpoint, taking fields that it leaves open from the model; return a note on them too."""
    with _in_flags_of_training():
        try:
            return read_checkpoint(source, part=part), []
        except UnstatedError as error:
            given = {name: getattr(cfg, name) for name in error.fields}
            if not given:
                raise
        fields = ", ".join(f"{name} = {word(value)}" for name, value in given.items())
        return read_checkpoint(source, part=part, given=given), [
            f"not stated in the file, taken from the model: {fields}"
        ]


@contextmanager
def _advising(what: str, advice: str) -> Iterator[None]:
    """Add advice for training to an error about fields that a file leaves open."""
    try:
        yield
    except UnstatedError as error:
        if not error.fields:
            raise
        fields = ", ".join(error.fields)
        raise UnstatedError(f"{what}: does not state {fields}; {advice}", error.fields) from None


_GIVEN = re.compile(r"--set((?: \w+=[^\s,;:)]+)+)")


def _said_in_training(text: str) -> str:
    """Replace the flags of `parity convert` in a message by those of the trainer, if it has such."""

    def fields(match: re.Match[str]) -> str:
        pairs = (each.split("=", 1) for each in match[1].split())
        return " ".join(f"--model.{name.replace('_', '-')} {value}" for name, value in pairs)

    text = _GIVEN.sub(fields, text)
    text = re.sub(r"--override \w+=[^\s,;:)]+", r"`parity convert \g<0>`", text)
    for flag, ours in (("--set", "--model.FIELD"), ("--like", "--preset"), ("--part", "--init-part")):
        text = re.sub(rf"(?<![\w-]){flag}(?![\w-])", ours, text)
    return text


@contextmanager
def _in_flags_of_training() -> Iterator[None]:
    try:
        yield
    except USER_ERRORS as error:
        error.args = (_said_in_training(str(error)), *error.args[1:])
        raise


def _differing_fields(there: ViTConfig, here: ViTConfig) -> list[str]:
    return [
        f"{name} = {getattr(there, name)} in the file, {getattr(here, name)} in the model"
        for name in here.fields()
        if name not in FREE and getattr(there, name) != getattr(here, name)
    ]


def _misfits(
    in_file: Mapping[str, Any], own: Mapping[str, Any], drawn: Collection[str], left: Collection[str]
) -> list[str]:
    """Describe tensors of other shapes, and missing and surplus ones that are not behind the blocks."""
    shapes = [
        f"{name} is {in_file[name]} in the file, {own[name]} in the model"
        for name in own
        if name in in_file and name not in drawn and in_file[name] != own[name]
    ]
    missing = [f"{n} {own[n]} is not in the file" for n in drawn if not n.startswith(AFTER)]
    unwanted = [f"{n} {in_file[n]} is not in the model" for n in left if not n.startswith(AFTER)]
    problems = shapes + missing + unwanted
    more = [f"and {len(problems) - 6} more tensors"] if len(problems) > 6 else []
    return problems[:6] + more


def _hop(checkpoint: Checkpoint, digest: str, done: Sequence[str]) -> Hop:
    """Return the checkpoint as a hop that was the start point of a training run."""
    return Hop(
        source=checkpoint.name,
        digest=digest,
        container=checkpoint.container.kind,
        dialect=checkpoint.dialect.name,
        license=checkpoint.license,
        done=(*done, "start point of a training run"),
        versions=versions(),
    )


def _listed(what: str, shapes: Mapping[str, Any], names: Collection[str]) -> list[str]:
    return [f"{what}: {', '.join(f'{name} {shapes[name]}' for name in names)}"] if names else []


def _preprocess(checkpoint: Checkpoint, cfg: ViTConfig) -> Any:
    """Return the checkpoint's preprocessing without class names, which the new data state."""
    stated = checkpoint.preprocess
    if stated is None:
        return None
    other_size = cfg.image_size != checkpoint.config.image_size
    return stated.replace(class_names=None, **({"image_size": None} if other_size else {}))
