"""Every text dialect."""

from parity.porting.text import big_vision, hf, open_clip

DIALECTS = (*hf.DIALECTS, *open_clip.DIALECTS, *big_vision.DIALECTS)
