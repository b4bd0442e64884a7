"""Random changes to training images and batches, each a function of an image and of random numbers."""
