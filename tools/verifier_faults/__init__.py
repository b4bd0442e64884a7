"""The parts of tools/mutation_score.py."""
