"""Training the PyTorch twin: the program of a run, its loop and its checkpoints; never needs JAX."""
