"""Any checkpoint to any other: formats, dialects, conversion, verification, fleets."""
