"""Training runs: one state in either framework's form, compared step by step, moved between them."""
