"""Kernels that compute otherwise, planted in one of two processes; and settings that only round."""
