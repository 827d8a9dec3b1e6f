"""With the extra ``excel``: sheets as spreadsheets write them."""

from pathlib import Path

import pytest
import xlsxwriter

from blue_solvers import estimate, read_tables


def test_a_sheet_is_read(tmp_path: Path) -> None:
    sheet = tmp_path / "in.xlsx"
    with xlsxwriter.Workbook(sheet) as book:
        page = book.add_worksheet()
        for i, row in enumerate([["sex", "value", "variance"], ["total", 20, 1], ["f", 9, 4], ["m", 12, 4]]):
            page.write_row(i, 0, row)
    problem, y = read_tables(sheet)
    assert estimate(problem, y).values[0] == pytest.approx(20 + 1 / 9)
