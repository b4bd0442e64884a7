"""Whole training runs of one file each, in both frameworks."""
