"""Mask diff."""

from workbench.mask_diff import draw_mask_diff

draw_mask_diff()
