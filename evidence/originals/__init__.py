"""Recipes compared with the code that they come from, on the same batches and random draws."""
