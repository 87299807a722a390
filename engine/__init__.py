"""DDTree engine: trees, verify metadata, masks, checks and recordings. Knows nothing about any user interface."""

__version__ = "0.1.0"
