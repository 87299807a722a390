"""Drafters: where a tree's marginals come from."""
