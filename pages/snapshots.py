"""Snapshots."""

from workbench.snapshots_page import draw_snapshots

draw_snapshots()
