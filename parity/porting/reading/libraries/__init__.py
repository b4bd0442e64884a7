"""The libraries that dialects belong to: models of theirs in memory, built, run and read."""
