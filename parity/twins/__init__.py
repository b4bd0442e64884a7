"""Checks that the twins are one function: of models, of training steps, of timm's whole family."""
