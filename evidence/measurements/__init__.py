"""Time and memory, each measured by one command."""
