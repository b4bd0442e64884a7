"""Training the JAX twin: data, devices, checkpoints, logs and the loop; never needs PyTorch."""
