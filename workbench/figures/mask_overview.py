"""A whole mask of any size in one picture, reduced by maximum: one wrong cell never disappears."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import plotly.graph_objects as go

from workbench.figures.base import blank
from workbench.figures.mask_codes import Codes, colours
from workbench.theme import Palette

DRAWN_ROWS, DRAWN_COLUMNS = 512, 2048  # pixels of the image
MAX_ROWS, MAX_COLUMNS = (
    128,
    512,
)  # fewer than the pixels they are drawn on: no browser averages one away


def reduce_by_max(codes: Codes, max_rows: int, max_columns: int) -> tuple[Codes, int, int]:
    """``codes`` in blocks of ``(height, width)`` cells, each as its largest code; also height and
    width.

    Example: 64 x 4096 with at most 128 x 512 gives 64 x 512 blocks of 1 x 8 cells.
    """
    rows, columns = codes.shape
    height, width = max(1, -(-rows // max_rows)), max(1, -(-columns // max_columns))
    padded = np.pad(codes, ((0, -rows % height), (0, -columns % width)))
    blocks = padded.reshape(padded.shape[0] // height, height, -1, width)
    return blocks.max(axis=(1, 3)).astype(np.uint8), height, width


def indexed_png(codes: Codes, hexes: list[str]) -> bytes:
    """A PNG whose pixel value is the code and whose palette holds the colours."""
    rows, columns = codes.shape
    palette = b"".join(bytes.fromhex(colour.lstrip("#")) for colour in hexes)
    raw = np.concatenate([np.zeros((rows, 1), np.uint8), codes], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(raw, 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _enlarge(codes: Codes) -> Codes:
    """Each block as several pixels, so that a browser's smoothing blurs its edges only."""
    rows, columns = codes.shape
    factors = (max(1, DRAWN_ROWS // max(rows, 1)), max(1, DRAWN_COLUMNS // max(columns, 1)))
    return codes.repeat(factors[0], axis=0).repeat(factors[1], axis=1)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def mask_overview(
    codes: Codes,
    palette: Palette,
    window: tuple[int, int, int, int] | None = None,
    *,
    tree_start: int | None = None,
) -> go.Figure:
    """``window``: first and past-last row, first and past-last column of the exact view, outlined."""
    small, height, width = reduce_by_max(codes, MAX_ROWS, MAX_COLUMNS)
    rows, columns = codes.shape
    sharp = _enlarge(small)
    png = base64.b64encode(indexed_png(sharp, colours(palette, faint=True))).decode()
    figure = blank(palette, int(np.clip(rows * 6 + 50, 120, 320)), l=46, b=30, t=8)
    figure.add_layout_image(
        source=f"data:image/png;base64,{png}",
        xref="x",
        yref="y",
        x=0,
        y=0,
        layer="below",
        sizex=small.shape[1] * width,
        sizey=small.shape[0] * height,
        sizing="stretch",
    )
    # An image alone gives the axes no extent; this trace does.
    figure.add_scatter(
        name="extent",
        x=[0, columns],
        y=[0, rows],
        mode="markers",
        marker={"opacity": 0},
        hoverinfo="skip",
    )
    font = {"size": 10, "color": palette.muted}
    axis = {"showticklabels": True, "tickfont": font, "tickformat": "d"}
    figure.update_xaxes(range=[0, columns], title={"text": "column", "font": font}, **axis)
    figure.update_yaxes(range=[rows, 0], title={"text": "row", "font": font}, **axis)
    if tree_start:
        figure.add_vline(x=tree_start, line={"color": palette.muted, "width": 1, "dash": "dot"})
    if window is not None:
        top, bottom, left, right = window
        figure.add_shape(
            type="rect",
            x0=left,
            x1=right,
            y0=top,
            y1=bottom,
            line={"color": palette.selected, "width": 2},
        )
    return figure
