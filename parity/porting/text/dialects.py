"""Every text dialect."""

from parity.porting.text import hf

DIALECTS = (*hf.DIALECTS,)
