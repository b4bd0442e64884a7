"""Training the JAX twin: programs, devices, hosts, checkpoints and runs; never needs PyTorch."""
