"""Panes: what the pages are made of; each draws one thing and writes picks into the selection."""
