"""Models and runs begun from checkpoints: the twins loaded, fine-tuned, saved, with adapters."""
