"""The contact sheet: every picture once, in its cell, under its name, never larger than it is."""

import numpy as np
import pytest
from PIL import Image

from tokensphere.drawing import contact_sheet
from tokensphere.drawing.contact_sheet import CELL, MARGIN, TITLE
from tokensphere.harness import records

STAMP = records.stamp("0f" * 32, "contact_sheet", ["tiny/trained"], ["wiki"])
WIDTH, AROUND = CELL + 2 * MARGIN, TITLE + 2 * MARGIN
# Each picture of one colour; wide, tall, small.
COLOURS = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0), (0, 200, 200)]
SIZES = [(1440, 600), (700, 1600), (300, 100), (700, 700), (1440, 600)]


@pytest.fixture
def sheet(tmp_path):
    """Return a function that writes the sheet of so many pictures, and reads it."""

    def write(count):
        paths = [tmp_path / f"fig{place}.png" for place in range(count)]
        for path, size, colour in zip(paths, SIZES, COLOURS, strict=False):
            Image.new("RGBA", size, colour).save(path)
        contact_sheet.write(tmp_path / "sheet.png", paths, stamp=STAMP)
        return np.asarray(Image.open(tmp_path / "sheet.png"))

    return write


def test_every_picture_stands_in_its_cell_in_order_and_a_row_is_as_high_as_its_highest(sheet):
    pixels = sheet(5)
    tops = [TITLE, CELL + AROUND + TITLE]
    assert pixels.shape == (CELL + AROUND + 292 + AROUND, 4 * WIDTH, 3)  # 600 / 1440 of 700
    for place, (colour, (width, height)) in enumerate(zip(COLOURS, SIZES, strict=True)):
        rows, columns = np.nonzero((pixels == colour).all(axis=2))
        assert rows.min() == tops[place // 4]
        assert {*(columns // WIDTH)} == {place % 4}
        shrunk = min(1.0, CELL / width, CELL / height)
        assert np.ptp(columns) + 1 == pytest.approx(width * shrunk, abs=1)
        assert np.ptp(rows) + 1 == pytest.approx(height * shrunk, abs=1)


def test_each_has_its_name_above_it_and_nothing_else_is_drawn(sheet):
    names = (sheet(2)[:TITLE] < 128).all(axis=2)
    left, right = names[:, :WIDTH], names[:, WIDTH:]
    for one in (left, right):
        middle = np.nonzero(one)[1].mean()
        assert middle == pytest.approx(WIDTH / 2, abs=6)  # letters differ in how black they are
    assert not np.array_equal(left, right)


def test_few_pictures_make_a_narrow_sheet(sheet):
    assert sheet(1).shape == (292 + AROUND, WIDTH, 3)


def test_the_sheet_says_what_it_is_and_is_the_same_file_again(sheet, tmp_path):
    sheet(3)
    first = (tmp_path / "sheet.png").read_bytes()
    assert records.read_stamp(tmp_path / "sheet.png")["input_id"] == "0f" * 32
    sheet(3)
    assert (tmp_path / "sheet.png").read_bytes() == first
