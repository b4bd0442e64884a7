"""Tables of names and layouts: one library a file, found by `parity.porting.dialects`."""
