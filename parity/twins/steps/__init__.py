"""Do the twins train alike? Steps from the same state, and whole runs beside their shadows."""
