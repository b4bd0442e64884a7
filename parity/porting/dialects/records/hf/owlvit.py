"""transformers' image towers of OWL-ViT and OWLv2: CLIP's, with one name spelled otherwise."""

from __future__ import annotations

from parity.porting.dialects.dialect import Dialect, by_code
from parity.porting.dialects.records.hf.clip import CAN, ENCODER, KEYS, NORM, TEXT
from parity.porting.dialects.records.hf.config import HfSettings, oblong
from parity.porting.dialects.records.hf.keys import sizes
from parity.porting.dialects.records.hf.siglip import no_head
from parity.porting.dialects.records.hf.vit import RESIZED
from parity.porting.dialects.table import add_prefix, layer, respell_names

PLACE = "vision_model."
TABLE = (*respell_names(ENCODER, {"pre_layrnorm": "pre_layernorm"}), *layer("norm", NORM))
OF_DETECTION = ("class_head.*", "box_head.*", "objectness_head.*", "layer_norm.*", "visual_projection.*")

DIALECTS = (
    Dialect(
        name="hf-owlvit-vision",
        title="transformers' OWL-ViT",
        family="hf",
        tables=(add_prefix(PLACE, TABLE),),
        marks=(f"{PLACE}embeddings.class_embedding", f"{PLACE}pre_layernorm.weight"),
        can=CAN,
        limits=no_head,
        fixed={**RESIZED, **by_code("OwlViTVisionTransformer: [:, 0, :]", pool="class")},
        settings=HfSettings(
            model_types={
                "owlvit_vision_model": "", "owlv2_vision_model": "", "owlvit": "vision_config",
                "owlv2": "vision_config",
            },
            keys=(*sizes(norm_eps=1e-5, act="quick_gelu", patch_size=32, image_size=768), *KEYS),
            architecture=lambda cfg: "OwlViTVisionModel",
            refuse=oblong,
            defaults={"owlv2_vision_model": {"patch_size": 16}},
            processor="OwlViTImageProcessor",
        ),
        square="OwlViTVisionEmbeddings: num_patches = (image_size // patch_size) ** 2",
        ignored=(*TEXT, f"{PLACE}embeddings.position_ids", *OF_DETECTION),
    ),
)  # fmt: skip
