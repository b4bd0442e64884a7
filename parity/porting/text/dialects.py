"""Every text dialect, and that of the project's own files: the twins' names behind a prefix."""

from parity.porting.dialects.records.own import OWN
from parity.porting.dialects.table import rest_under
from parity.porting.text import big_vision, hf, open_clip
from parity.porting.text.dialect import TextDialect
from vit_config.files.weights_file import TEXT_TOWER

OWN_TEXT = TextDialect(
    name="parity-text",
    title=OWN.title,
    beside=(OWN.name,),
    tables=(rest_under(TEXT_TOWER),),
    mark=f"{TEXT_TOWER}token_embed",
    tower=(f"{TEXT_TOWER}*",),
)
DIALECTS = (OWN_TEXT, *hf.DIALECTS, *open_clip.DIALECTS, *big_vision.DIALECTS)
