"""Findings."""

from workbench.findings_page import draw_findings

draw_findings()
