"""Where images lie: one module for each kind of set, each of which gives two splits of records."""
