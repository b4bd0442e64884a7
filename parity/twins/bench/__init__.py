"""How fast models run: images per second, compile time and memory, each side in a process of its own."""
