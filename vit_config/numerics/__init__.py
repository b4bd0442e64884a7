"""Numerics that both twins share: tables, angles, resampling matrices, in float64 numpy."""
