"""The trainer that knows no framework: data, augmentation, run folder, log, plots, one loop."""
