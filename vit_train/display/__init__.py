"""A run as people see it: metrics, progress, curves, profiles."""
