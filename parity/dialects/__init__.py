"""How other libraries spell the parameters: one table each, read in both directions."""
