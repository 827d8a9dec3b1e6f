"""How large a table is by its file's own words, and whether such a file may say so; asked before the file is read.

Few bytes can declare much: a workbook of 5 kB a cell in the last row and column of its sheet, hence 17 billion cells; a
compressed text a gigabyte of commas; a Parquet file lists nested so deeply that the library that reads them ends the
process. Every format says what a file of it declares, and all are judged here.
"""

from __future__ import annotations

from dataclasses import dataclass

from constraint_builders.memory import format_bytes, require_memory

MOST_COLUMNS = 1 << 14  # as many as a sheet has
DEEPEST = 8  # fields within one another: a list is one within two
SMALL = 256 << 20  # bytes of memory that any file may fill
MOST_PLAIN, MOST_CELLS = 500, 250  # for each byte of the file: counts that are almost all 0 have 150 and 75 as .csv.gz
TEXT_BYTES, NUMBER_BYTES = 32, 8  # of a cell in memory, an empty one too


@dataclass(frozen=True)
class DeclaredSize:
    """What a file says that it holds.

    Attributes
    ----------
    cells : int
        Texts, numbers and empty cells; in lists every number.
    columns : int
    plain : int
        Bytes once decompressed.
    cell_bytes : int
        Of memory that a cell takes at least.
    depth : int
        Of columns within columns, as lists and records have them.
    """

    cells: int
    columns: int
    plain: int
    cell_bytes: int
    depth: int = 1

    def require_shallow(self) -> None:
        """Raise `ValueError` if columns lie deeper within one another than the libraries that read them can go."""
        if self.depth > DEEPEST:
            raise ValueError(f"a column has {self.depth:,} others within one another: give text, numbers or lists")

    def require_moderate(self, size: int) -> None:
        """Refuse what is more than a table in a file of `size` bytes can be, or cannot be read whole.

        Raises
        ------
        ValueError
            As `require_shallow`; if there are too many columns, or far more cells or text than so many bytes can say.
        MemoryError
            If it takes more memory than is free.
        """
        self.require_shallow()
        if self.columns > MOST_COLUMNS:
            raise ValueError(f"it has {self.columns:,} columns, more than {MOST_COLUMNS:,}: give a row for each cell")
        memory = self.plain + self.cell_bytes * self.cells
        if memory <= SMALL:
            return
        if self.plain > MOST_PLAIN * size or self.cells > MOST_CELLS * size:
            held = f"{format_bytes(self.plain)} once unpacked" + (f", {self.cells:,} cells" if self.cells else "")
            raise ValueError(f"its {format_bytes(size)} hold {held}, as no table does: is it damaged? Write it anew")
        require_memory(memory, "reading it", "give a smaller table, or take a machine with more memory")
