"""How equality is measured: errors, tolerances, precision, weights that hide nothing, recordings."""
