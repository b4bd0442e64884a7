"""Mutants of the core and the tests that should fail for them: drawn, run, counted."""
