"""The commands of `parity` as Python functions, which take objects as well as files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args, overload

from vit_config import PRESETS, ConfigError, ViTConfig, preset
from vit_config.pretrained import Reading, hands_on

if TYPE_CHECKING:
    import numpy as np

    import vit_jax
    import vit_torch
    from parity.exporting.export import Exported, To
    from parity.exporting.subject import DType, Input
    from parity.measure import tolerance
    from parity.measure.device import Device
    from parity.measure.precision import Precision
    from parity.porting.formats.base import Stored
    from parity.twins.check import CheckReport
    from parity.verifier.match import Matched
    from parity.verifier.recordings.diagnosis import Diagnosis
    from parity.verifier.report.compared import Compared
    from vit_train.frameworks import Framework

Model = Any
"""`vit_jax.ViT` or `vit_torch.ViT`."""


@overload
def create_model(
    name: str, *, framework: Literal["jax"],
    pretrained: bool = False, seed: int = 0, kernel: str = "auto", **changes: Any,
) -> vit_jax.ViT: ...  # fmt: skip
@overload
def create_model(
    name: str, *, framework: Literal["torch"],
    pretrained: bool = False, seed: int = 0, kernel: str = "auto", **changes: Any,
) -> vit_torch.ViT: ...  # fmt: skip
@overload
def create_model(
    name: str, *, framework: Framework | None = None,
    pretrained: bool = False, seed: int = 0, kernel: str = "auto", **changes: Any,
) -> Model: ...  # fmt: skip
def create_model(
    name: str,
    *,
    framework: Framework | None = None,
    pretrained: bool = False,
    seed: int = 0,
    kernel: str = "auto",
    **changes: Any,
) -> Model:
    """Build one twin by name, as `timm.create_model` does; the other framework is not imported.

    Args:
        name: a preset such as ``vit_base_patch16_224``, with or without the tag of its weights
            (``vit_base_patch16_224.augreg_in21k``); with `pretrained` also whatever `load` reads.
        framework: ``jax`` or ``torch``; None is the one that is installed.
        pretrained: load the weights of the tag from the Hugging Face Hub (timm's default tag if the name
            has none). The model's configuration is then what the weights were made for.
        seed: seed of the initial values.
        kernel: how attention is computed, one of the twin's `kernels.KERNELS`; ``auto`` takes a fused
            kernel for inference where that is faster.
        changes: fields of `ViTConfig` that differ from the preset, such as ``num_classes=10``; with
            `pretrained`, ``num_classes`` and ``image_size`` only: a new head is initialised, learned
            positions are resampled by the configuration's own rule.

    Returns:
        The model; a pretrained PyTorch model is in evaluation mode.

    Raises:
        ConfigError: no such preset, tag or field, or a contradiction among them; or both frameworks are
            installed, and none is given.
        MissingFileError: the Hub has no such weights, or cannot be reached.
    """
    from parity.porting.models.files import load, twin_of
    from parity.porting.opening.hub import is_path
    from vit_train.frameworks import only_framework

    framework = framework or only_framework()
    twin = twin_of(framework)
    if not pretrained:
        cfg = preset(name).replace(**changes)
        return _drawn(twin, framework, cfg, seed, kernel)
    if other := sorted(set(changes) - {"num_classes", "image_size"}):
        raise ConfigError(
            f"pretrained = True keeps the weights' configuration, but {', '.join(other)} would change"
            " it; leave it out, or use pretrained = False"
        )
    loaded = load(name if is_path(name) else f"timm:{name}", framework=framework, kernel=kernel)
    if all(getattr(loaded.config, field) == value for field, value in changes.items()):
        return loaded.model
    arrays = twin.to_arrays(loaded.model)
    cfg, about = loaded.config, loaded.model.about
    if size := changes.get("image_size"):
        from vit_config import resize_weights

        cfg, arrays = resize_weights(cfg, arrays, image_size=size)
        about = about.of_another_size()
    if changes.get("num_classes", cfg.num_classes) != cfg.num_classes:
        cfg = cfg.replace(num_classes=changes["num_classes"])
        fresh = twin.to_arrays(_drawn(twin, framework, cfg, seed, kernel))
        body = {each: value for each, value in arrays.items() if not each.startswith("head")}
        arrays = {each: body.get(each, value) for each, value in fresh.items()}
        about = about.with_another_head()
    model = twin.from_arrays(cfg, arrays, kernel=kernel)
    model.about = about
    return model


def _drawn(twin: Any, framework: Framework, cfg: ViTConfig, seed: int, kernel: str) -> Model:
    """Build a model with initial values drawn from a seed."""
    if framework == "jax":
        from flax import nnx

        return twin.ViT(cfg, kernel=kernel, rngs=nnx.Rngs(seed))
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return twin.ViT(cfg, kernel=kernel)


@hands_on(Reading)
def export(
    source: Any,
    out: str | Path,
    *,
    to: To,
    input: Input = "uint8",
    dtype: DType | None = None,
    keep_float32: Sequence[str] = (),
    bound: float | None = None,
    images: Sequence[str | Path] = (),
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
    labels: Sequence[str] = (),
    template: str = "{}",
    image_size: tuple[int, int] | int | None = None,
    batch: int | None = None,
    opset: int | None = None,
    force: bool = False,
    **reading: Unpack[Reading],
) -> Exported:
    """Write a model as a program of another format.

    A process that cannot import this project reads the program back and runs it on pictures; the outputs
    are compared with both twins'. ``OUT.json`` describes the program: inputs and outputs, schema,
    preprocessing, class names, licence, provenance, and its distance from the twins.

    Args:
        source: a checkpoint or a model in memory as `load` reads it, or a model of either twin.
        out: the file to write.
        to: ``stablehlo``, ``onnx`` or ``torch-export``.
        input: ``uint8``, pictures (B, h, w, C) of any size, which the program resizes, crops and
            normalises as the file says; ``float32``, images that the caller has prepared; ``tokens``,
            ids (B, N) of texts: the text tower of a CLIP or a SigLIP is exported.
        dtype: type of the weights and of the computation; by default the weights' own type. ``int8``:
            an ONNX file is quantised by ONNX Runtime; what that costs is measured, and has no limit.
        keep_float32: what stays in float32 of a program in a smaller type: ``["auto"]`` looks for the
            operations of which none can be left out; or names of modules, lines or operations.
        bound: the largest relative error of an output, with `keep_float32`.
        images: pictures on which the program is run too; the first 8.
        platforms: platforms that a StableHLO program is lowered for.
        labels: classes in words, of a CLIP or a SigLIP: the logits are those of their texts.
        template: text of each of these classes, with {} in its place.
        image_size: height and width in pixels that the model itself sees, or one number for both, to
            which its positions are resampled; None keeps them.
        batch: number of images or texts of each call; None leaves it open.
        opset: version of ONNX's operators; None is PyTorch's choice.
        force: replace existing files.
        reading: options of `read_checkpoint` that state what the checkpoint leaves open.

    Raises:
        DifferentError: the program does not compute the same function; no file is kept. Its ``where``
            are the lines in which `diff` says where and why.
        ConfigError: no such format, input, type or platform, or the model does not fit the format.
        InputError: `input` is ``uint8``, and the preprocessing is unknown; or there is no text tower.
        MissingFileError, WeightsError: see `read_checkpoint`; or the program cannot be read back.
    """
    from parity.exporting.export import export as written
    from parity.exporting.formats import Settings
    from parity.verifier.exported import explain

    each = (platforms,) if isinstance(platforms, str) else platforms
    return written(source, out, to=to, input=input, dtype=dtype, labels=labels, template=template,
                   image_size=image_size, batch=batch, settings=Settings(each, opset), force=force,
                   keep_float32=keep_float32, bound=bound, images=[*map(Path, images)], explain=explain,
                   **reading)  # fmt: skip


def check(
    subject: str | Path | ViTConfig,
    *,
    images: np.ndarray | None = None,
    dtypes: Sequence[tolerance.DType] | None = None,
    batch_size: int = 2,
    seed: int = 0,
    precision: Precision = "highest",
    device: Device = "cpu",
) -> CheckReport:
    """Compare the outputs, activations, loss and gradients of the twins.

    Args:
        subject: a preset, a configuration, or a checkpoint of any dialect.
        images: of a checkpoint: (B, H, W, C), already normalised; None draws `batch_size` random ones.
        dtypes: types to compare in; None is float64 and float32.
        seed: seed of the images, and of the weights of a preset or a configuration.
        precision: precision of float32 products in both twins; below the highest nothing is certified.
        device: device that both twins compute on.

    Returns:
        A report; its ``passed`` says whether the twins agree.

    Raises:
        ConfigError, MissingFileError, WeightsError: the subject does not exist or cannot be read.
        InputError: the model was not built for such images.
    """
    from parity.measure.tolerance import DType
    from parity.porting.opening.hub import is_path
    from parity.twins.check import check_config, check_weights

    if isinstance(dtypes, str) or not {*(dtypes or ())} <= {*get_args(DType)}:
        raise ConfigError(f"dtypes = {dtypes!r}: give a list of {', '.join(get_args(DType))}")
    how: dict[str, Any] = {"dtypes": dtypes, "batch_size": batch_size, "seed": seed}
    how |= {"precision": precision, "device": device}
    if isinstance(subject, Path) or (
        isinstance(subject, str) and subject not in PRESETS and is_path(subject)
    ):
        return check_weights(subject, images=images, **how)
    if images is not None:
        raise ConfigError("images go with a checkpoint; what has no weights is checked on random ones")
    if isinstance(subject, ViTConfig):
        return check_config(subject, **how)
    return check_config(preset(subject), subject=subject, **how)


def diff(
    a: Any,
    b: Any,
    *,
    gradients: bool = False,
    backward: bool = True,
    seed: int = 0,
    accept: Collection[str] = (),
    run_programs: bool = False,
) -> Compared | Diagnosis:
    """Find whether two programs are the same, forward and backward, and where and why they are not.

    Args:
        a: the reference: ``(model, inputs)``, ``(module, variables, inputs)`` of Linen, or a string
            as the command `parity diff` takes it: a preset, a checkpoint, ``file.py:function``, or a
            recording, which can only be compared with another recording.
        b: the program or recording to compare with A, in any of these forms.
        gradients: whether the programs run backward themselves, as a training step does.
        backward: whether to differentiate programs that do not run backward themselves.
        seed: seed of the weights of presets, and of the images.
        accept: names of causes by which two recordings may differ, as ``--accept`` takes them.
        run_programs: whether to run what files hold or name: the code of a ``.pt2``, and the programs
            of two recordings, to find the line where a loss or a gradient differs.

    Raises:
        ConfigError, InputError, MissingFileError, WeightsError: a side cannot be built or compared.
    """
    from parity.verifier.compare import compare
    from parity.verifier.programs.build import BuildOrder, build_from, build_together
    from parity.verifier.recordings.sides import recordings

    names = _name_of("a", a), _name_of("b", b)
    recorded = recordings(*names)
    if recorded is not None:
        from parity.verifier.recordings import compare_sides
        from parity.verifier.recordings.diagnosis import diagnose
        from parity.verifier.recordings.steps.names import check_causes

        check_causes(accept)
        run = compare if run_programs else None
        return diagnose(compare_sides(*recorded), accept, run=run)
    if accept:
        raise ConfigError(f"accept goes with two recordings, and {names[0]} is none")
    sides = build_together(
        [
            lambda batch, side=side, twin=twin: (
                build_from(
                    BuildOrder(
                        name=str(side), twin=twin, seed=seed, run_programs=run_programs
                    ).of_images(batch)
                )
                if isinstance(side, str | Path)
                else side
            )
            for side, twin in ((a, "torch"), (b, "jax"))
        ],
        names,
    )
    return compare(*sides, names=names, gradients=gradients, backward=backward)


def _name_of(name: str, side: Any) -> str:
    return str(side) if isinstance(side, str | Path) else name


def match(
    a: str | Path | Mapping[str, Stored | np.ndarray], b: str | Path | Mapping[str, Stored | np.ndarray]
) -> Matched:
    """Match the parameters of A with those of B, whatever they are called.

    Args:
        a: a checkpoint, or arrays by name.
        b: the same of another program.

    Raises:
        ConfigError: a side is neither.
        MissingFileError, WeightsError: a file is missing or damaged.
    """
    from parity.verifier.match import match as match_arrays
    from parity.verifier.match.leaves import read_leaves

    for name, side in zip("ab", (a, b), strict=True):
        if not isinstance(side, str | Path | Mapping):
            raise ConfigError(
                f"{name} is of class {type(side).__name__}; give a path, or arrays by name;"
                " parity.assert_loaded compares a model with a file"
            )

    sides = [read_leaves(Path(side)) if isinstance(side, str | Path) else side for side in (a, b)]
    return match_arrays(*sides)
