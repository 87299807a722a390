"""Attention backends of the verify step: implementations are chosen by name, never by silent fallback."""
