"""Out to where models run: StableHLO, ONNX and torch.export, read back by others and compared."""
