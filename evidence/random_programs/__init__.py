"""Random programs in JAX and in PyTorch: equal ones must be EQUAL, changed ones DIFFERENT."""
