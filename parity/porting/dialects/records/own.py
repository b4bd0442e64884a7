"""The project's own files: the twins' names, and a header that states schema and metadata."""

from __future__ import annotations

from parity.porting.dialects.dialect import ANY, Dialect
from parity.porting.dialects.table import REST
from vit_config import ViTConfig
from vit_config.files.weights_file import TEXT_TOWER

OWN = Dialect(
    name="parity",
    title="this project",
    family="parity",
    tables=((REST,),),
    marks=(),  # recognised by its header alone
    ignored=(f"{TEXT_TOWER}*",),
    can=dict.fromkeys(ViTConfig.fields(), ANY),
    header={},
    unshown=("pool", "final_norm"),
)
DIALECTS = (OWN,)
