"""Run."""

from workbench.run_page import draw_run

draw_run()
