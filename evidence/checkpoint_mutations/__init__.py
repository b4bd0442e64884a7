"""Small checkpoints of every kind, what may happen to them, and what may come of it."""
