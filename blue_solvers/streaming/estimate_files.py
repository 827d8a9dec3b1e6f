"""The files of estimates that a run writes, one for every geolevel of a part, and what it keeps of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from blue_solvers.results.checksums import DamagedError, is_intact, sha256
from blue_solvers.results.estimate_rows import rows_of, write_estimates
from blue_solvers.streaming.manifest import TOP, level_file
from blue_solvers.streaming.part_data import Design, Estimates, Part
from blue_solvers.streaming.workplace import Workplace, remove
from constraint_builders.arrays import Index

DONE = "done"  # in the folder of work: the files of every output with their SHA-256


class EstimateFiles:
    """The files of estimates of a run.

    Parameters
    ----------
    design : Design
    place : Workplace
    """

    def __init__(self, design: Design, place: Workplace) -> None:
        self._design, self._place = design, place

    def write(self, output: str, part: Part, result: Estimates, kept: Index) -> dict[str, str]:
        """Write estimates of some geounits of a part, by their positions, (k,); the files with their SHA-256."""
        files = {}
        for level, level_name in enumerate(self._design.levels):
            rows = part.numbers(level, kept)
            codes = [part.geocodes[part.members(level).start + row] for row in rows.tolist()]
            errors = {i: rows_of(variances, rows, np.sqrt) for i, variances in result.variances.items()}
            tables = [
                (table, rows_of(result.cells[i], rows), errors.get(i))
                for i, (where, table) in enumerate(self._design.desired)
                if where == level and i in result.cells
            ]
            if rows.size and tables:
                path = level_file(level_name, output)
                with self._place.replacing(path) as temporary:
                    write_estimates(temporary, codes, tables)
                    files[path] = sha256(temporary)
        return files

    def of(self, output: str) -> dict[str, str] | None:
        """The files of an output with their SHA-256; None if it is not written."""
        return self._place.kept(f"{DONE}/{output}", dict[str, str])

    def are_intact(self, output: str) -> bool:
        """Whether an output is there and undamaged."""
        files = self.of(output)
        return files is not None and all(is_intact(self._place.out / path, digest) for path, digest in files.items())

    def of_all(self, outputs: Iterable[str]) -> dict[str, str]:
        """The files of some outputs with their SHA-256, by their paths in order; `DamagedError` if one is missing."""
        files: dict[str, str] = {}
        for output in outputs:
            own = self.of(output)
            if own is None or not all((self._place.out / path).is_file() for path in own):
                raise DamagedError(f"{self._place.out}: estimates of part {output} are missing: run again")
            files |= own
        return dict(sorted(files.items()))

    def remove(self, outputs: Iterable[str]) -> None:
        """Remove the files of some outputs, and nothing else."""
        for output in outputs:
            for path in self.of(output) or ():
                remove(self._place.out / path)
        for level in self._design.levels:
            with suppress(OSError):  # not empty: there are others' files
                (self._place.out / level_file(level, TOP)).parent.rmdir()
