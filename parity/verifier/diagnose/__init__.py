"""Why two models differ: what they computed is computed again, under each hypothesis of a catalogue."""
