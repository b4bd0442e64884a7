"""Loads and saves models of either framework."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transform import as_type
from parity.porting.formats.metadata import Metadata
from parity.porting.formats.suffixes import PROGRAMS, WEIGHTS
from parity.porting.models.loaded import Loaded
from parity.porting.opening.opened import Opened
from parity.porting.opening.provenance import digest_of_source, to_json
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.origins import stated_preprocess
from parity.porting.text.read import has_text
from parity.porting.text.texts import load_texts
from vit_config import ConfigError, Preprocess, ViTConfig, WeightsError, write_weights
from vit_config.errors import naming
from vit_config.files.matching import mismatches
from vit_config.parameters import parameters
from vit_config.pretrained import About, DType, Reading, hands_on
from vit_train.frameworks import Framework, only_framework

if TYPE_CHECKING:
    from jax.sharding import Mesh


@hands_on(Reading)
def load(
    source: str | Path | Opened | Any,
    *,
    framework: Framework | None = None,
    kernel: str = "auto",
    dtype: DType | None = None,
    mesh: Mesh | None = None,
    **reading: Unpack[Reading],
) -> Loaded:
    """Read a checkpoint of any dialect into one twin; the other framework is not imported.

    Args:
        source: a file or folder, or a name on the Hugging Face Hub: ``hf-hub:org/name`` or
            ``timm:name.tag``, see `parity.porting.opening.hub`; an `Opened` that `open_checkpoint`
            returned; a model of timm, transformers, torchvision or open_clip in memory; or a state dict.
        framework: ``jax`` or ``torch``; None is the one that is installed.
        kernel: how attention is computed, one of the twin's `kernels.KERNELS`.
        dtype: type of the parameters and of the computation; by default the weights' own type.
        mesh: of JAX, devices to split each parameter over, along an axis that their number divides.
        reading: options of `read_checkpoint` that state what the checkpoint leaves open.

    Raises:
        MissingFileError: there is no such file or name.
        WeightsError: the file is no checkpoint of a known dialect, is truncated or damaged, or does not
            have the tensors that its schema asks for; or a model in memory computes another function.
        ConfigError: a field that has to be stated was not, or a stated value is not valid; or both
            frameworks are installed, and none is given.
    """
    checkpoint = read_checkpoint(source, **reading)
    framework = framework or only_framework()
    twin = twin_of(framework)
    if mesh is not None and framework != "jax":
        raise ConfigError(
            f'framework = {framework!r} takes no mesh; give framework = "jax", or leave it'
        )
    if mesh is not None:
        _check_mesh(mesh)
    with naming(checkpoint.path), ThreadPoolExecutor(1) as beside:
        digest = beside.submit(digest_of_source, checkpoint.container)  # reads the whole file meanwhile
        state = ModelState(checkpoint.config, checkpoint.arrays)
        state = state if dtype is None else as_type(state, dtype)
        arrays = {name: stored.load() for name, stored in state.arrays.items()}
        model = twin.from_arrays(checkpoint.config, arrays, kernel=kernel)
    if mesh is not None:
        _spread(model, mesh)
    hops = (*checkpoint.hops, checkpoint.hop(digest.result(), state.said))
    model.about = About(checkpoint.preprocess, to_json(hops))
    return Loaded(
        metadata=checkpoint.metadata,
        origins=checkpoint.origins,
        notes=(*checkpoint.notes, *state.said),
        framework=framework,
        model=model,
        read_texts=partial(load_texts, checkpoint, framework=framework, kernel=kernel, dtype=dtype),
        has_texts=has_text(checkpoint) is not None,
    )


def save(
    path: str | Path,
    model: Any,
    *,
    preprocess: Preprocess | None = None,
    provenance: Sequence[Any] | None = None,
    force: bool = False,
) -> None:
    """Write either twin's model to a weights file, whole or not at all.

    Args:
        preprocess: how images are prepared; default: the model's own, from the file it was read from.
        provenance: hops of the weights, oldest first, JSON values; default: the model's own.
        force: replace an existing file.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: the path is a folder or of another format, or exists and `force` is not set; or the
            model is not one of the twins', or `preprocess` is no `Preprocess`.
        WeightsError: `load` would refuse the file: the parameters are not those of the model's
            configuration, as after ``model.head = ...``, or not of one type, or the class names are not
            as many as the classes. Nothing is written.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(
            f"path is a {type(path).__name__}; the path stands first: parity.save(path, model)"
        )
    suffix = Path(path).suffix
    if suffix in (*WEIGHTS, *PROGRAMS.values()) and suffix != ".safetensors":
        maker = "parity.convert" if suffix in WEIGHTS else "parity.export"
        raise ConfigError(
            f"{path}: written is safetensors alone; of a .safetensors file {maker} makes {suffix}"
        )
    framework = type(model).__module__.partition(".")[0].removeprefix("vit_")
    cfg = getattr(model, "cfg", None)
    if not isinstance(cfg, ViTConfig):
        raise ConfigError(f"{type(model).__qualname__} is not a model of vit_jax or vit_torch")
    preprocess = stated_preprocess(preprocess) or model.about.preprocess
    arrays = twin_of(framework).to_arrays(model)
    expected = {name: each.shape for name, each in parameters(cfg).items()}
    if problems := mismatches(expected, arrays, of="the model", by="its configuration"):
        raise WeightsError(
            f"{path}: is not written, as nothing could load it: {'; '.join(problems)}; replace a head by"
            " model.reset_classifier(N), and give all parameters one type"
        )
    advice = "nothing is written; give a preprocess whose class_names are one a class"
    Metadata.of(preprocess).check_classes(cfg.num_classes, advice)
    hops = json.loads(model.about.provenance) if provenance is None else provenance
    write_weights(path, cfg, arrays, preprocess, hops, force=force)


def twin_of(framework: str) -> Any:
    """Import the package of a framework's twin: `vit_jax` or `vit_torch`.

    Raises:
        ConfigError: an unknown framework.
    """
    if framework == "jax":
        import vit_jax

        return vit_jax
    if framework == "torch":
        import vit_torch

        return vit_torch
    raise ConfigError(f'framework = {framework!r}; expected "jax" or "torch"')


def _check_mesh(mesh: Any) -> None:
    """Refuse what is no `jax.sharding.Mesh`. Raises ConfigError."""
    from jax.sharding import Mesh

    if not isinstance(mesh, Mesh):
        raise ConfigError(f"mesh is a {type(mesh).__name__}; give a jax.sharding.Mesh")


def _spread(model: Any, mesh: Any) -> None:
    """Split each parameter over all devices of a mesh, along its first axis that their number divides;
    every device has a whole copy of the others.

    Args:
        model: a `vit_jax.ViT`, which is changed.
        mesh: a `jax.sharding.Mesh`. Axes of JAX's default type, explicit, become automatic ones: every
            reshape of a model would have to say where its result lies.
    """
    import jax
    from flax import nnx
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    automatic = (AxisType.Auto,) * len(mesh.axis_names)
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=automatic)

    def place(value: jax.Array) -> NamedSharding:
        divided = (axis for axis, size in enumerate(value.shape) if size % mesh.size == 0)
        axis = next(divided, None)
        spec = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, mesh.axis_names)
        return NamedSharding(mesh, spec)

    state = nnx.state(model)
    nnx.update(model, jax.device_put(state, jax.tree.map(place, state)))
