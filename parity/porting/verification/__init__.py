"""Running what was read and what was written: in both twins, and in the libraries themselves."""
