"""Dialects of Hugging Face transformers: tensors and config files, a module for each kind of model."""
