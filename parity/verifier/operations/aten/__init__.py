"""Recording PyTorch programs."""
