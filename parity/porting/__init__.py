"""Conversion of checkpoints between dialects: formats, dialects, conversion, verification, fleets."""
