"""Where and why any two models differ: diff, diagnose, match, and parity as an assertion."""
