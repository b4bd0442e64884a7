"""Causes of different training steps: each stage is recomputed under every known rule."""
