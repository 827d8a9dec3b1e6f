"""What a sheet does not show, and cells that are errors: named, or refused, whatever program wrote the workbook."""

import re
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from time import process_time

import pytest

from blue_solvers.cli import main
from constraint_builders.files.excel import read_excel
from constraint_builders.files.titles import Source
from tests.helpers.every import every
from tests.helpers.refused_commands import refusal

xlsxwriter = pytest.importorskip("xlsxwriter")

ROWS = [["sex", "value", "std_error"], ["*", 1004, 10], ["f", 520, 6], ["m", 490, 6], ["x", 2, 6]]


def workbook(rows: Sequence[int] = (), columns: Sequence[int] = (), error: str = "") -> bytes:
    """ROWS from row 1 on, some rows and columns hidden, by their positions, and a cell that is an error."""
    written, spoilt = BytesIO(), BytesIO()
    with xlsxwriter.Workbook(written) as book:
        page = book.add_worksheet()
        for i, row in enumerate(ROWS):
            page.write_row(i, 0, row)
        for i in rows:
            page.set_row(i, None, None, {"hidden": True})
        for i in columns:
            page.set_column(i, i, None, None, {"hidden": True})
    with zipfile.ZipFile(written) as archive, zipfile.ZipFile(spoilt, "w") as other:
        for name in archive.namelist():
            cell = rb'(<c r="%s")([^>]*>).*?</c>' % error.encode()
            other.writestr(name, re.sub(cell, rb'\1 t="e"\2<v>#REF!</v></c>', archive.read(name)))
    return spoilt.getvalue()


def read(data: bytes) -> Source:
    with TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        return read_excel(file)


@every("rows", [[], [4], [1, 2, 3], [3, 8]])
@every("columns", [[], [2], [1, 2], [0, 5]])
def test_hidden_rows_and_columns_are_said(rows: list[int], columns: list[int]) -> None:
    found = read(workbook(rows, columns))
    assert found.frame.equals(read(workbook()).frame)
    filled = [[str(i + 1) for i in rows if i < 5], ["ABC"[i] for i in columns if i < 3]]
    said = iter(found.doubts)
    for kind, hidden in zip(("row", "column"), filled, strict=True):
        if hidden:
            several = f"{len(hidden)} {kind}s are hidden, {hidden[0]} first"
            assert next(said).startswith(several if len(hidden) > 1 else f"{kind} {hidden[0]} is hidden")
    assert not list(said)


@every("cell", ["A3", "B2", "C4"])
def test_errors_are_no_empty_cells(cell: str) -> None:
    with pytest.raises(ValueError, match=f"cell {cell} is an error"):
        read(workbook(error=cell))


@every("number", ["7358", "7,358", "-2"])
@every("inline", [False, True])
def test_a_raised_mark_behind_a_number_is_no_digit(number: str, inline: bool) -> None:
    """As text it is one: 7358 with a note 2 was 73,582. In a title, or on a sheet that is not read, it may stand."""
    written = BytesIO()
    options = {"constant_memory": inline}
    with xlsxwriter.Workbook(written, options) as book:
        bold, raised = book.add_format({"bold": True}), book.add_format({"font_script": 1, "bold": True})
        page, other = book.add_worksheet(), book.add_worksheet()
        page.write_rich_string(0, 0, bold, "Counts of 2020", raised, "1")
        for i, row in enumerate(ROWS[:-1]):
            page.write_row(i + 1, 0, row)
        page.write_rich_string(5, 0, "x", raised, "1")
        page.write_row(5, 1, [number + "2", 6])  # a number of its own, of the same digits
        other.write_rich_string(0, 0, bold, number, raised, "2")
    assert read(written.getvalue()).frame.row(-1) == ("x1", number + "2", "6")
    with xlsxwriter.Workbook(written := BytesIO(), options) as book:
        raised, page = book.add_format({"font_script": 1}), book.add_worksheet()
        for i, row in enumerate(ROWS):
            page.write_row(i, 0, row)
        page.write_row(5, 0, ["y"])
        page.write_rich_string(5, 1, number, raised, "2")
        page.write_row(5, 2, [6])
    with pytest.raises(ValueError, match=f"row 6 has '{number}' and a raised '2' in one cell"):
        read(written.getvalue())


def test_the_command_says_what_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sheet, out = tmp_path / "in.xlsx", tmp_path / "out.csv"
    sheet.write_bytes(workbook(rows=[4]))
    assert main(["estimate", str(sheet), "--out", str(out)]) == 0
    assert "row 5 is hidden" in capsys.readouterr().out
    sheet.write_bytes(workbook(error="B4"))
    assert "in.xlsx: cell B4 is an error" in refusal(capsys, "estimate", str(sheet), "--out", str(out))


def test_a_tag_without_an_end_takes_no_time() -> None:
    """Of a cell, in a workbook whose formulas nobody worked out: in a square of its length it would take a minute."""
    data, spoilt = workbook(), BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(spoilt, "w", zipfile.ZIP_DEFLATED) as other:
        for name in archive.namelist():
            part = archive.read(name)
            other.writestr(name, part + b"<c " + b'r="A1" ' * 50_000 if "worksheets" in name else part)
    begun = process_time()
    assert read(spoilt.getvalue()).frame.height == len(ROWS) - 1
    assert process_time() - begun < 3
