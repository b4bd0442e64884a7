"""Export of models to StableHLO, ONNX and torch.export, each read back and compared with the twins."""
