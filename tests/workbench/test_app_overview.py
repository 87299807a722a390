"""A difference never vanishes in the overview. Run: pytest tests/workbench/test_app_overview.py."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.figures.mask_codes import Code, colours
from workbench.figures.mask_overview import indexed_png, mask_overview, reduce_by_max
from workbench.theme import LIGHT

SIZES = st.tuples(st.integers(1, 70), st.integers(1, 700))


def pixels(png: bytes) -> np.ndarray:
    """A reader of its own: no filter, one byte a pixel."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, shape = 8, b"", (0, 0)
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            name + body
        )
        if name == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
            shape = (height, width)
        if name == b"IDAT":
            data += body
        at += 12 + length
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(shape[0], shape[1] + 1)
    assert not raw[:, 0].any()
    return raw[:, 1:]


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 40), st.integers(1, 90), st.data())
def test_each_wrong_cell_is_in_its_block(size, max_rows, max_columns, data) -> None:
    rows, columns = size
    codes = np.zeros(size, np.uint8)
    places = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    wrong = data.draw(st.dictionaries(places, st.sampled_from([3, 4, 5]), min_size=1, max_size=8))
    for place, code in wrong.items():
        codes[place] = code
    small, height, width = reduce_by_max(codes, max_rows, max_columns)
    assert small.shape[0] <= max_rows
    assert small.shape[1] <= max_columns
    for (row, column), code in wrong.items():
        assert small[row // height, column // width] >= code
    assert {(r, c) for r, c in np.argwhere(small)} == {(r // height, c // width) for r, c in wrong}


def test_the_picture_holds_the_one_wrong_cell() -> None:
    codes = np.ones((64, 4096), np.uint8)
    codes[40, 4000] = Code.EXTRA
    figure = mask_overview(codes, LIGHT)
    source = figure.layout.images[0].source
    drawn = pixels(base64.b64decode(source.partition(",")[2]))
    rows, columns = np.nonzero(drawn == Code.EXTRA)
    assert len(rows) > 0
    assert rows.min() // 8 == rows.max() // 8 == 40  # 512 pixels for 64 rows
    assert columns.min() // 4 == 4000 // 8  # 2048 pixels for 512 blocks of 8 columns
    assert set(np.unique(drawn)) == {Code.VISIBLE, Code.EXTRA}


def test_png_round_trip() -> None:
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert pixels(indexed_png(codes, colours(LIGHT))).tolist() == codes.tolist()
