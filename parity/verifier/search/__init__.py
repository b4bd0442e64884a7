"""The search for the places where two programs part: values that meet, trials, rounds."""
