"""Diagnosis of two recordings of training: the cause of a difference, by the rules of a step."""
