"""What `bench files` compares with: polars alone reads measurement files, and writes the files of a result."""

import sys
import time
from pathlib import Path
from typing import cast

import polars as pl
from polars._typing import ParquetCompression


def main(place: Path, row_group: int, compression: ParquetCompression) -> None:
    """Read the release and write the result's files; print the seconds of reading the latter, which are beside."""
    for path in sorted((place / "release").rglob("*.parquet")):
        if path.is_file():
            pl.read_parquet(path)
    beside = 0.0
    for path in sorted((place / "result").rglob("*.parquet")):
        if path.is_file():
            start = time.process_time()
            frame = pl.read_parquet(path)
            beside += time.process_time() - start
            groups = row_group if path.parent.name == "estimates" else None
            frame.write_parquet(place / "copy.parquet", row_group_size=groups, compression=compression)
    print(beside)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), cast(ParquetCompression, sys.argv[3]))
