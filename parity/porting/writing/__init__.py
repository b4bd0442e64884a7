"""A checkpoint written in another dialect, with other channels or positions, and opened again."""
