"""Measurement files that lie elsewhere and are linked are read as if they lay here; no link is left out silently."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.refused import refuses
from tests.helpers.state_files import part, read


def parents_of(file: Path, folder: Path) -> list[Path]:
    """A file, and the folders that hold it within another."""
    return [file, *(path for path in file.parents if path != folder and folder in path.parents)]


@pytest.mark.few(4)
@pytest.mark.parametrize("above", range(4))
@pytest.mark.parametrize("level", ["State", "Block"])
def test_what_is_linked_is_read(level: str, above: int, folder: Path) -> None:
    expected = read(folder)
    linked = parents_of(part(folder, level), folder)[above]
    elsewhere = folder.parent / f"elsewhere{linked.suffix}"
    shutil.move(linked, elsewhere)
    linked.symlink_to(elsewhere)
    np.testing.assert_array_equal(read(folder).y, expected.y)
    shutil.rmtree(elsewhere) if elsewhere.is_dir() else elsewhere.unlink()
    refuses(linked.name, read, folder, error=FileNotFoundError)


@pytest.mark.parametrize("what", ["Block.parquet/Constraint", "Block.parquet/DPQuery/part-1.parquet", "US.parquet"])
def test_a_link_to_nothing_beside_what_is_there_is_refused(what: str, folder: Path) -> None:
    read(folder)
    (folder / what).symlink_to(folder / "nothing")
    refuses(Path(what).name, read, folder, error=FileNotFoundError)


@pytest.mark.parametrize("target", ["Block.parquet/DPQuery", "Block.parquet/DPQuery/State=044", "."])
def test_folders_that_are_linked_twice_are_refused(target: str, folder: Path) -> None:
    (folder / "Block.parquet" / "DPQuery" / "again").symlink_to(folder / target)
    refuses("links lead to this folder twice", read, folder)


def test_a_folder_that_cannot_be_listed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = part(folder).parent
    inner: Callable[[Any], Iterator[os.DirEntry[str]]] = os.scandir

    def refusing(path: Any) -> Iterator[os.DirEntry[str]]:
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return inner(path)

    monkeypatch.setattr(os, "scandir", refusing)
    refuses("State=044", read, folder, error=PermissionError)
