"""Flags, reading and printing that several commands share."""
