"""Text towers beside image towers: their dialects, their tokens, and classes named by texts."""
