"""Hugging Face transformers: its models' tensors and its config files, a module for each kind."""
