"""One small Vision Transformer in the styles in which people write it, for pairs that must be equal."""
