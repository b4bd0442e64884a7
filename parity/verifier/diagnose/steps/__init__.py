"""Why two training programs take another step: each stage computed again under every known rule."""
