"""KerasHub's models: ``.weights.h5``, ``.keras`` and preset folders."""
