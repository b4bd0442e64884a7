"""Batches out of data sets: cropped, augmented, mixed and read ahead, by threads and processes."""
