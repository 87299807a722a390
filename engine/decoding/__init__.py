"""Decoding loops: plain, chain and tree."""
