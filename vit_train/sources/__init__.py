"""Sources of images: one module for each kind of set, each of which returns two splits of records."""
