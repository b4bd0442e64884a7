"""Runs and processes that are killed, and run folders that are damaged."""
