"""Measuring equality: errors, tolerances, precision, redrawn weights, recordings."""
