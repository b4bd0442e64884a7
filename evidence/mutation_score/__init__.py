"""The score of the verifier on deliberate faults, in parts."""
