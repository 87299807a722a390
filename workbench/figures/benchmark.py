"""How long the largest mask takes to draw: build the figure and turn it into what is sent to the
browser.
"""

from __future__ import annotations

import time

import numpy as np
import plotly.io as pio

from workbench.figures.base import blank, discrete
from workbench.figures.mask_codes import Code, colours
from workbench.figures.mask_overview import mask_overview
from workbench.theme import LIGHT

ROWS, COLUMNS = 64, 4096


def bench_mask_drawing() -> dict[str, float]:
    """Seconds and bytes for a 64 x 4096 mask: exact heatmap, and the overview as an image."""
    rng = np.random.default_rng(0)
    codes = (rng.random((ROWS, COLUMNS)) < 0.5).astype(np.uint8)
    codes[40, 4000] = Code.EXTRA
    started = time.perf_counter()
    figure = blank(LIGHT, 800)
    figure.add_heatmap(z=codes, **discrete(colours(LIGHT)))
    exact = pio.to_json(figure)
    between = time.perf_counter()
    overview = pio.to_json(mask_overview(codes, LIGHT))
    ended = time.perf_counter()
    return {
        "exact_seconds": between - started,
        "exact_bytes": float(len(exact)),
        "overview_seconds": ended - between,
        "overview_bytes": float(len(overview)),
    }


if __name__ == "__main__":
    for name, value in bench_mask_drawing().items():
        print(f"{name:18} {value:.4g}")
