"""Programs as a user gives them, recorded operation by operation, ready to be run again."""
