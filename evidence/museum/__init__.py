"""Mistakes that people made in public, each beside its corrected form."""
