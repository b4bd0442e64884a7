"""Search for the timm architecture, and its arguments, that a config.json can name for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pprint import pformat
from typing import Any, NamedTuple

from parity.porting.dialects.dialect import NEUTRAL, agree
from parity.porting.dialects.records.timm.arguments import architecture_only, arguments_of
from vit_config import PRESETS, ConfigError, ViTConfig
from vit_config.presets import from_timm

SAID = ("img_size", "in_chans", "num_classes", "global_pool", "standardize")
"""Arguments that are written for every model, as timm does; the last, for which a classifier's encoder
has tensors without a use, if the class has it."""
UNLIKE = {"dynamic_img_size": "dynamic_image_size", "init_values": "layer_scale"}
"""Arguments that are written if their field differs from the architecture's although the function does
not: so that further training of timm's model is as the source's would be."""
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RmsNorm"}
"""timm's norm classes."""


class _Candidate(NamedTuple):
    """An architecture with arguments that bring it near a model; the minimum is the nearest."""

    in_the_way: int
    """Number of obstacles."""
    differences: tuple[int, int, int, int]
    name: str
    arguments: dict[str, Any]
    obstacles: tuple[str, ...]
    """Fields and arguments that differ from the model's and that JSON cannot change."""


class Constructor(NamedTuple):
    """A call of ``timm.create_model`` that builds a model."""

    name: str
    """Name of the architecture."""
    arguments: dict[str, Any]
    """Arguments that JSON can express."""
    norm: str | None = None
    """timm's norm class, if it has to be given with an epsilon, which JSON cannot express."""
    norm_eps: float = 0.0
    norm_arguments: tuple[str, ...] = ()
    """Arguments that take the norm class."""
    obstacles: tuple[str, ...] = ()
    """Fields of the schema that only `norm` can express."""

    @property
    def texts(self) -> dict[str, str]:
        """All arguments as Python source."""
        norm = f"functools.partial(timm.layers.{self.norm}, eps={self.norm_eps})"
        given = {key: repr(value) for key, value in self.arguments.items()}
        return given | dict.fromkeys(self.norm_arguments, norm)

    @property
    def text(self) -> str:
        """The call as Python source."""
        options = "".join(f", {key}={value}" for key, value in self.texts.items())
        return f"timm.create_model({self.name!r}{options})"


FOLLOWS = {"use_fc_norm": "use_post_transformer_norm"}
"""Arguments, and those whose default in timm follows from them."""


def constructor(cfg: ViTConfig, modules: tuple[str, ...]) -> Constructor:
    """Return the call, for the nearest architecture of some modules, that builds a model.

    Raises:
        ConfigError: no architecture can be made this model.
    """
    best = min(_candidates(cfg, modules))
    if not best.obstacles:
        return Constructor(best.name, best.arguments)
    if not set(best.obstacles) <= {"norm", "norm_eps", "patch_norm"}:
        raise ConfigError(
            f"no constructor of timm can express {_obstacles(cfg, best.name, best.obstacles)}; write a"
            " file instead of a folder, such as out.safetensors or out.pth, for a model made in Python"
        )
    base = _stated(best.name)
    given = {key: value for key, value in best.arguments.items() if value != base.get(key)}
    given |= {
        follows: best.arguments[follows]
        for key, follows in FOLLOWS.items()
        if key in given and follows in best.arguments
    }
    return Constructor(
        name=best.name,
        arguments=given,
        norm=NORMS[cfg.norm],
        norm_eps=cfg.norm_eps,
        norm_arguments=("norm_layer", "embed_norm_layer") if cfg.patch_norm else ("norm_layer",),
        obstacles=best.obstacles,
    )


@cache
def _stated(name: str) -> dict[str, Any]:
    """Return the arguments of an architecture."""
    return arguments_of(PRESETS[name], from_timm.architectures()[name]["module"])


def _candidates(cfg: ViTConfig, modules: tuple[str, ...]) -> Iterator[_Candidate]:
    pairs = {module: (arguments_of(cfg, module), architecture_only(cfg, module)) for module in modules}
    for name, entry in from_timm.architectures().items():
        module = entry["module"]
        if module not in pairs:
            continue
        base, theirs = PRESETS[name], _stated(name)
        ours, fixed = pairs[module]
        obstacles = [field for field, value in fixed.items() if getattr(base, field) != value]
        obstacles += [key for key in ours if ours[key] is None and theirs.get(key) is not None]
        arguments = {key: value for key, value in ours.items() if value is not None}
        changes, others = _differences(cfg, base)
        if not changes:
            also = [key for key, field in UNLIKE.items() if getattr(cfg, field) != getattr(base, field)]
            arguments = {key: arguments[key] for key in (*SAID, *also) if key in arguments}
        elif name.endswith("_sapiens2"):  # whose own list has an entry for each of its own blocks
            arguments["num_kv_heads"] = list(cfg.kv_heads)
        differences = (changes, others, modules.index(module), abs(cfg.hidden_size - base.hidden_size))
        yield _Candidate(len(obstacles), differences, name, arguments, tuple(obstacles))


def refusal(cfg: ViTConfig, call: Constructor) -> str:
    """Say why timm's config.json cannot express a model, and what can."""
    return (
        f"timm's config.json cannot express {_obstacles(cfg, call.name, call.obstacles)}; write a file"
        f" instead of a folder, such as out.safetensors or out.pth, for {call.text}"
    )


def module_text(call: Constructor, pretrained: Mapping[str, Any]) -> str:
    """Return a Python module whose `create_model` builds a model with the weights beside it.

    Args:
        pretrained: timm's ``pretrained_cfg``.
    """
    given = {
        **call.texts,
        "pretrained_cfg": pformat(dict(pretrained), indent=4, width=90, sort_dicts=False),
        "checkpoint_path": 'Path(__file__).with_name("model.safetensors")',
    }
    lines = "".join(f"        {key}={value},\n" for key, value in given.items())
    return MODULE.format(name=call.name, obstacles=", ".join(call.obstacles), lines=lines)


MODULE = '''"""timm's model of the weights beside this file: its config.json cannot express {obstacles}.

    from model import create_model

    model = create_model()
    timm.data.resolve_model_data_config(model)  # how images are prepared
"""

import functools
from pathlib import Path

import timm
import timm.layers


def create_model(**options):
    """The model with its weights; options as `timm.create_model` takes them."""
    return timm.create_model(
        "{name}",
{lines}        **options,
    )
'''


def _obstacles(cfg: ViTConfig, name: str, obstacles: tuple[str, ...]) -> str:
    """Name a model's fields and arguments with their values, and those of an architecture."""
    base, module = PRESETS[name], from_timm.architectures()[name]["module"]
    ours, theirs = ({**each.model_dump(), **arguments_of(each, module)} for each in (cfg, base))
    return ", ".join(f"{field} = {ours[field]} ({name} has {theirs[field]})" for field in obstacles)


def _differences(cfg: ViTConfig, base: ViTConfig) -> tuple[int, int]:
    """Count the fields in which two models differ: those that change the function, and the others.

    Image size, channels and classes count with the others.
    """
    fields = [name for name in cfg.fields() if getattr(cfg, name) != getattr(base, name)]
    light = (*NEUTRAL, "image_size", "in_channels", "num_classes")
    heavy = [
        name
        for name in fields
        if name not in light and not agree(name, getattr(cfg, name), getattr(base, name))
    ]
    return len(heavy), len(fields) - len(heavy)
