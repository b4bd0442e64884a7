"""PyTorch's programs, recorded."""
