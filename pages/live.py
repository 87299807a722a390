"""Live."""

from workbench.live_page import draw_live

draw_live()
