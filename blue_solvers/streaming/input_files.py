"""Whether a folder of noisy measurements is the one that a run began with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blue_solvers.results.checksums import sha256, untouched
from constraint_builders.files.measurement_files import CONSTRAINTS, MEASUREMENTS, files_of, level_folders


@dataclass(frozen=True)
class InputFiles:
    """The files that are read.

    Attributes
    ----------
    digests : dict of str to str
        SHA-256 of every file by its path within the folder.
    stamps : dict of Path to os.stat_result
        What the file system said of every file before its SHA-256 was worked out.
    """

    digests: dict[str, str]
    stamps: dict[Path, os.stat_result]

    @classmethod
    def of(cls, folder: str | os.PathLike[str], geolevels: Sequence[str]) -> InputFiles:
        """Read all files of some geolevels once; raises as `read_noisy_measurements` where there is none."""
        places = level_folders(folder, geolevels).values()
        paths = [path for place in places for kind in (MEASUREMENTS, CONSTRAINTS) for path in files_of(place, kind)]
        stamps = {path: path.stat() for path in paths}
        return cls({path.relative_to(folder).as_posix(): sha256(path) for path in paths}, stamps)

    def require_unchanged(self) -> None:
        """Raise `ValueError` if a file was written to or replaced since."""
        for path, before in self.stamps.items():
            if not path.is_file() or not untouched(path.stat(), before):
                raise ValueError(f"{path}: it changed while it was read: let nobody write there, and run again")
