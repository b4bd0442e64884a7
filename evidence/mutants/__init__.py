"""Other people's models with one thing changed, and whether a comparison finds what it was."""
