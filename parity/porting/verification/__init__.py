"""Verification of conversions: source and result are run in both twins and in their libraries."""
