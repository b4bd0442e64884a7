"""Recording JAX programs."""
