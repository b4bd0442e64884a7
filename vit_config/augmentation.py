"""Random changes to training images and to whole batches: the nested schemas of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from vit_config.base import Listed, PositiveInt, Schema, as_json

Range = Annotated[tuple[PositiveFloat, PositiveFloat], Listed]
"""The smallest and the largest value of a draw between them."""


class Augment(Schema, frozen=True):
    """Random changes to each training image, in this order; the defaults leave images as they are."""

    decode_side: PositiveInt | None = None
    """Decode JPEGs to 1/2, 1/4 or 1/8 of their size where the smaller side still has this many pixels:
    faster for photographs, with other pixels than those of the whole image, which is the default."""
    crop: Literal["none", "torchvision", "tensorflow", "random"] = "none"
    """What of an image is seen: all of it; a random part of random proportions, drawn as torchvision and
    timm do, or as TensorFlow's `sample_distorted_bounding_box`, then brought to the model's size; or a
    random part of that size, after the shorter side was brought to `crop_resize`, as Big Vision."""
    crop_area: Range = (0.08, 1.0)
    """Smallest and largest share of the image's area that a crop takes; Big Vision's is (0.05, 1)."""
    crop_ratio: Range = (3 / 4, 4 / 3)
    """Smallest and largest width over height of a crop; TensorFlow's is (0.75, 1.33)."""
    crop_filter: Literal["bilinear", "bicubic"] = "bicubic"
    """PIL's filter that resizes torchvision's crop; TensorFlow's is bilinear, without averaging."""
    crop_resize: PositiveInt | None = None
    """Pixels of the shorter side that a random crop is taken from."""

    shift: float = Field(default=0.0, ge=0, le=0.5)
    """Largest shift, as a share of the image's height and width."""
    rotate: float = Field(default=0.0, ge=0, le=180)
    """Largest rotation either way, in degrees."""
    scale: float = Field(default=0.0, ge=0, lt=1)
    """Largest enlargement or reduction, as a share of the size."""
    flip: bool = False
    """Mirror left and right with probability one half."""

    policy: Literal["none", "timm", "big_vision", "three"] = "none"
    """RandAugment as timm (`rand-m9-mstd0.5-inc1` with the defaults of the next three fields) or as Big
    Vision; or DeiT III's ThreeAugment: grey, solarised or blurred."""
    policy_layers: PositiveInt = 2
    """Operations that RandAugment draws for an image."""
    policy_magnitude: float = Field(default=9.0, ge=0, le=10)
    """How strong they are, from 0 to 10."""
    policy_deviation: float = Field(default=0.5, ge=0)
    """Standard deviation of the strength in timm's RandAugment."""
    color_jitter: float = Field(default=0.0, ge=0, le=1)
    """Largest change of brightness, contrast and saturation, as torchvision's ColorJitter."""
    erase: float = Field(default=0.0, ge=0, le=1)
    """Probability that a rectangle of the normalised image becomes noise: timm's random erasing by
    pixels."""
    repeats: PositiveInt = 1
    """Views of an image in an epoch, next to each other, which sees a share of the images then: DeiT's
    repeated augmentation."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("crop_area", "crop_ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(
                    f"{name} = ({low}, {high}): the first must not be the larger; swap them"
                )
        if self.crop_area[1] > 1:
            raise ValueError(
                f"crop_area ends at {self.crop_area[1]}, but 1 is the whole image; use at most 1"
            )
        if self.crop == "random" and self.crop_resize is None:
            raise ValueError('crop = "random" with crop_resize = null: a random crop needs crop_resize')
        for field, other, values in AUGMENT_GOES_WITH:
            value, other_value = getattr(self, field), getattr(self, other)
            if value != type(self).model_fields[field].default and other_value not in values:
                raise ValueError(
                    f"augment.{field} = {as_json(value)} does nothing where augment.{other} ="
                    f" {as_json(other_value)}; leave it out"
                )
        return self


_RESIZED = ("crop", ("torchvision", "tensorflow"))
AUGMENT_GOES_WITH: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("crop_area", *_RESIZED),
    ("crop_ratio", *_RESIZED),
    ("crop_filter", "crop", ("torchvision",)),
    ("crop_resize", "crop", ("random",)),
    ("policy_layers", "policy", ("timm", "big_vision")),
    ("policy_magnitude", "policy", ("timm", "big_vision")),
    ("policy_deviation", "policy", ("timm",)),
)
"""Fields that have an effect only if another has one of these values."""


class Mix(Schema, frozen=True):
    """Images mixed with others of their batch, labels with theirs; nothing is mixed by default."""

    mixup: float = Field(default=0.0, ge=0)
    """Alpha of the Beta distribution of an image's share (arXiv 1710.09412); 0 is no mixup."""
    cutmix: float = Field(default=0.0, ge=0)
    """Alpha of the Beta distribution of the share that is not pasted over (arXiv 1905.04899); 0 is no
    cutmix."""
    style: Literal["timm", "big_vision"] = "timm"
    """Whom an image is mixed with: in timm the one as far from the batch's end; in Big Vision the one
    before it, whose share is never the larger one."""
    mode: Literal["batch", "pair", "elem"] = "batch"
    """Draws for the whole batch, for each pair, or for each image."""
    probability: float = Field(default=1.0, gt=0, le=1)
    """How often anything is mixed."""
    cutmix_share: float = Field(default=0.5, ge=0, le=1)
    """How often it is cutmix where both are on."""

    @property
    def mixes(self) -> bool:
        """Whether anything is mixed."""
        return bool(self.mixup or self.cutmix)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        changed = [n for n in self.fields() if getattr(self, n) != type(self).model_fields[n].default]
        if changed and not self.mixes:
            raise ValueError(
                f"mix.{changed[0]} = {as_json(getattr(self, changed[0]))} does nothing where mix.mixup ="
                " 0.0 and mix.cutmix = 0.0; set one of them"
            )
        if self.style == "big_vision":
            for name in changed:
                if name not in ("mixup", "style"):
                    raise ValueError(
                        f"mix.{name} = {as_json(getattr(self, name))} is timm's, but mix.style ="
                        ' "big_vision" mixes the whole batch by mixup only; leave it out'
                    )
        if "cutmix_share" in changed and not (self.mixup and self.cutmix):
            raise ValueError(
                f"mix.cutmix_share = {self.cutmix_share} chooses between two, but mix.mixup ="
                f" {self.mixup} and mix.cutmix = {self.cutmix}; set both, or leave it out"
            )
        return self
