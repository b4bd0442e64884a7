"""Recipes beside the code that they come from, on the same batches and draws."""
