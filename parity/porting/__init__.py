"""Checkpoints of every library, read, run, converted and verified.

From the ground up: `formats` (files without a framework), `dialects` (tables of names and layouts, one
library a file in `dialects.records`), `opening`, `recognition`, `reading`; above them `text` (text
towers), `writing`, `hosts` (towers inside of larger models), `verification`, `fleet` (many checkpoints),
and `models` (the twins begun from checkpoints).
"""
