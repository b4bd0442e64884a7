"""Every Vision Transformer of the installed timm, compared with the twins."""
