"""Draws the one-glyph font ``visible-space.woff``: U+2420 as an open box, which few systems' fonts
have.

Run once with ``pip install fonttools``: ``python workbench/static/make_visible_space.py``.
"""

from __future__ import annotations

from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._g_l_y_f import Glyph

EM, ADVANCE = 1000, 600
BOX = [
    (70, 160),
    (70, -120),
    (530, -120),
    (530, 160),
    (450, 160),
    (450, -40),
    (150, -40),
    (150, 160),
]


def open_box() -> Glyph:
    """A box without its lid, below the baseline's middle."""
    pen = TTGlyphPen(None)
    pen.moveTo(BOX[0])
    for point in reversed(BOX[1:]):
        pen.lineTo(point)
    pen.closePath()
    return pen.glyph()


def build(path: Path) -> None:
    """Write the font."""
    font = FontBuilder(EM, isTTF=True)
    font.setupGlyphOrder([".notdef", "visiblespace"])
    font.setupCharacterMap({0x2420: "visiblespace"})
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "visiblespace": open_box()})
    font.setupHorizontalMetrics({".notdef": (ADVANCE, 0), "visiblespace": (ADVANCE, 70)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Visible Space", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.font.flavor = "woff"
    font.save(path)


if __name__ == "__main__":
    build(Path(__file__).with_name("visible-space.woff"))
