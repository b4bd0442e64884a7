"""A run's folder: manifest, log, checkpoints, written whole or not at all; how it begins or goes on."""
