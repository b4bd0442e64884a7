"""Certificates: the result of a check in a file that can be kept, and verified by running it again."""
