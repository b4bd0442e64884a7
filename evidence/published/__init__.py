"""What published checkpoints are, and how their libraries make them."""
