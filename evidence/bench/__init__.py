"""Benchmarks of models: images per second, compile time and memory, each side in its own process."""
