"""Images: decoding, fitting to a size and normalising of pixels."""
