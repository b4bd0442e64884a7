"""JAX's programs, recorded."""
