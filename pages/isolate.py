"""Isolate."""

from workbench.isolate_page import draw_isolate

draw_isolate()
