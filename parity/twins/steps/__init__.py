"""Checks that the twins train alike: steps from the same state, and whole runs beside their shadows."""
