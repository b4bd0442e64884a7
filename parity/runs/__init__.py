"""Training runs of both frameworks: reading, writing, comparing at a step, moving between frameworks."""
