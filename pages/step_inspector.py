"""Step inspector."""

from workbench.inspector import draw_inspector

draw_inspector()
