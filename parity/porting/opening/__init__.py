"""Checkpoints found and opened, on the Hub or on disk: headers and provenance, nothing recognised."""
