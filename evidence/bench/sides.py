"""The sides that can be timed: a forward pass and a training step of one model, by one library.

A training step is the cross entropy, its gradient and AdamW, on the same random images every time.

Parameters and AdamW are float32 whatever products are computed in. In bfloat16 the JAX twin computes as
`train.py --recipe.dtype bfloat16` does, from rounded parameters; models of PyTorch run in
`torch.autocast`, as its documentation advises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vit_config import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from vit_config import ViTConfig

Dtype = Literal["float32", "tf32", "bfloat16"]
"""Type of products: float32 in full, TensorFloat-32 where a device has it, or bfloat16."""


class Side(NamedTuple):
    """One model, ready to run; a device may still compute when a call returns."""

    forward: Callable[[], Any]
    step: Callable[[], Any]
    wait: Callable[[Any], None]
    """Wait until what a call returned has been computed."""
    device: str
    peak_bytes: Callable[[], int] | None = None
    """Peak memory of the accelerator; None where the process's own counts."""


def make_side(name: str, model: str, batch_size: int, dtype: Dtype = "float32") -> Side:
    """Make the side of that name, one of `SIDES`.

    Raises:
        ConfigError: the library has no such model.
        ModuleNotFoundError: the library is not installed.
    """
    import numpy as np

    from vit_config import preset

    stream = np.random.default_rng(0)
    cfg = preset(model)
    images = stream.standard_normal((batch_size, *cfg.image_size, cfg.in_channels), dtype=np.float32)
    labels = stream.integers(0, cfg.num_classes, batch_size)
    return SIDES[name](model, cfg, dtype, images, labels)


def _vit_jax(
    kernel: Literal["reference", "xla", "cudnn"], remat: Literal["none", "full"] = "none"
) -> Callable[..., Side]:
    return partial(_side_jax, kernel, remat)


def _side_jax(
    kernel: Literal["reference", "xla", "cudnn"],
    remat: Literal["none", "full"],
    model: str,
    cfg: ViTConfig,
    dtype: Dtype,
    images: np.ndarray,
    labels: np.ndarray,
) -> Side:
    import jax
    import jax.numpy as jnp

    from vit_config import Recipe
    from vit_jax.compiling import compiler_options
    from vit_jax.functional import make_apply
    from vit_jax.host_memory import keep_freed_memory
    from vit_jax.scanned import Loop
    from vit_jax.step import init_state, make_train_step

    keep_freed_memory()  # as train.py does
    if jax.default_backend() != "cpu":  # a CPU has float32 in full alone
        jax.config.update("jax_default_matmul_precision", "highest" if dtype == "float32" else "default")
    recipe = Recipe(kernel=kernel, dtype="bfloat16" if dtype == "bfloat16" else "float32")
    state = jax.jit(lambda: init_state(cfg, recipe, 1000))()
    options = compiler_options(jax.default_backend())
    pure_step = make_train_step(cfg, recipe, 1000, loop=Loop(remat=remat))
    train_step = jax.jit(pure_step, donate_argnums=0, compiler_options=options)
    apply = make_apply(cfg, kernel=kernel)

    def logits(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
        computed = {name: value.astype(recipe.dtype) for name, value in params.items()}
        return apply(computed, images.astype(recipe.dtype), return_tokens=False).logits

    classify = jax.jit(logits, compiler_options=options)
    batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels, jnp.int32)}

    def forward() -> jax.Array:
        return classify(state.params, batch["image"])

    def step() -> Any:
        nonlocal state
        state, metrics = train_step(state, batch)
        return state, metrics

    device = jax.devices()[0]
    if device.platform == "cpu":
        return Side(forward, step, jax.block_until_ready, "cpu")
    peak = lambda: device.memory_stats()["peak_bytes_in_use"]  # noqa: E731
    return Side(forward, step, jax.block_until_ready, device.device_kind, peak)


def _torch(
    module: Any,
    dtype: Dtype,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    compiled: bool,
    logits: str | None,
) -> Side:
    """Make the side of a PyTorch model of (B, C, H, W); `logits` names its output's field of logits."""
    import torch
    from torch.nn import functional as F

    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.set_float32_matmul_precision("highest" if dtype == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = dtype != "float32"
    rounded = partial(torch.autocast, device.type, torch.bfloat16, enabled=dtype == "bfloat16")
    module = module.to(device).train()
    call = torch.compile(module) if compiled else module
    # fused, as the fastest of torch's own; the same arithmetic
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().to(device)
    y = torch.from_numpy(labels).to(device)

    def run() -> Any:
        with rounded():
            output = call(x)
        return output if logits is None else getattr(output, logits)

    def wait(_: Any) -> None:
        if cuda:
            torch.cuda.synchronize()

    def forward() -> Any:
        with torch.no_grad():
            return run()

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(run().float(), y).backward()
        optimizer.step()

    if not cuda:
        return Side(forward, step, wait, "cpu")
    return Side(forward, step, wait, torch.cuda.get_device_name(), torch.cuda.max_memory_allocated)


def _vit_torch(compiled: bool, kernel: str = "sdpa") -> Callable[..., Side]:
    def make(model: str, cfg: ViTConfig, *data: Any) -> Side:
        from torch import nn

        from vit_torch.model import ViT

        class Fast(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.vit = ViT(cfg, kernel=kernel)

            def forward(self, x: Any) -> Any:
                return self.vit(x, return_tokens=False).logits

        return _torch(Fast(), *data, compiled=compiled, logits=None)

    return make


def _timm(compiled: bool) -> Callable[..., Side]:
    def make(model: str, cfg: ViTConfig, *data: Any) -> Side:
        from evidence.timm_sweep.peer import import_timm

        timm: Any = import_timm()
        timm.layers.set_fused_attn(True)
        if not timm.is_model(model):
            raise ConfigError(f"timm has no model {model!r}; leave --sides timm out")
        return _torch(timm.create_model(model), *data, compiled=compiled, logits=None)

    return make


def _check_plain(cfg: ViTConfig, library: str) -> None:
    """Refuse models other than the one of arXiv 2010.11929, the only one in other libraries."""
    from vit_config import ViTConfig

    plain = ViTConfig(
        image_size=cfg.image_size,
        patch_size=cfg.patch_size,
        in_channels=cfg.in_channels,
        hidden_size=cfg.hidden_size,
        depth=cfg.depth,
        num_heads=cfg.num_heads,
        mlp_dim=cfg.mlp_dim,
        num_classes=cfg.num_classes,
        norm_eps=cfg.norm_eps,
    )
    if cfg != plain:
        raise ConfigError(f"{library} has only the plain Vision Transformer; leave it out of --sides")


def _transformers(model: str, cfg: ViTConfig, *data: Any) -> Side:
    _check_plain(cfg, "transformers")
    import transformers

    config = transformers.ViTConfig(
        hidden_size=cfg.hidden_size,
        num_hidden_layers=cfg.depth,
        num_attention_heads=cfg.num_heads,
        intermediate_size=cfg.mlp_dim,
        image_size=cfg.image_size,  # type: ignore[arg-type]
        patch_size=cfg.patch_size,  # type: ignore[arg-type]
        layer_norm_eps=cfg.norm_eps,
    )
    config.num_labels = cfg.num_classes
    return _torch(transformers.ViTForImageClassification(config), *data, compiled=False, logits="logits")


def _vit_pytorch(model: str, cfg: ViTConfig, *data: Any) -> Side:
    _check_plain(cfg, "vit-pytorch")
    import vit_pytorch

    module = vit_pytorch.ViT(
        image_size=cfg.image_size,
        patch_size=cfg.patch_size,
        num_classes=cfg.num_classes,
        dim=cfg.hidden_size,
        depth=cfg.depth,
        heads=cfg.num_heads,
        dim_head=cfg.head_dim,
        mlp_dim=cfg.mlp_dim,
        channels=cfg.in_channels,
    )
    return _torch(module, *data, compiled=False, logits=None)


SIDES: dict[str, Callable[..., Side]] = {
    "timm": _timm(False),
    "vit_jax": _vit_jax("reference"),
    "vit_jax-xla": _vit_jax("xla"),
    "vit_jax-cudnn": _vit_jax("cudnn"),
    "vit_jax-remat": _vit_jax("reference", "full"),
    "vit_torch": _vit_torch(False),
    "vit_torch-reference": _vit_torch(False, "reference"),
    "vit_torch-compiled": _vit_torch(True),
    "timm-compiled": _timm(True),
    "transformers": _transformers,
    "vit_pytorch": _vit_pytorch,
}
"""Sides by name, in the default order; ratios refer to the first that runs."""
