"""Files and folders, whole or not at all: safetensors by offsets and as a stream, seals, digests."""
