"""Pairs of programs by an author who had not seen the verifier."""
