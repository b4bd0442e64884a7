"""Certificates: what a check found, in a file that can be kept, and verified by running it again."""
