"""Recorded steps against plain decoding: what our own engine chooses at every node of what another one verified."""
