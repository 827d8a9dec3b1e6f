"""Numbers of a file of estimates that somebody changed are noticed on its page, which shows them as they are."""

import tempfile
from pathlib import Path

import polars as pl
import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.html_outline import outline


@pytest.mark.parametrize("digits", ["2", "13"])
@pytest.mark.parametrize("column", ["estimate", "std_error", "lower", "upper"])
@lengths("cells", 2, 20)
def test_a_figure_that_was_changed_in_a_file_is_noticed(tmp_path: Path, column: str, digits: str, cells: int) -> None:
    """Any of them, by one in the first digit of its standard error; nothing is said of the file as it was written."""
    result, out = tmp_path / "result.csv", tmp_path / "page.html"
    assert main(["estimate", str(examples.BERKELEY), "--digits", digits, "--out", str(result)]) == 0
    written = pl.read_csv(result)
    noisy = (written["std_error"] > 0).arg_true().to_list()
    for row in [-1, *noisy[:: len(noisy) // cells]]:
        moved = 10.0 ** pl.col("std_error").log10().floor() * (pl.int_range(pl.len()) == row)
        written.with_columns(pl.col(column) + pl.when(pl.col("std_error") > 0).then(moved).otherwise(0)).write_csv(
            result
        )
        other = row >= 0 and column in ("estimate", "std_error")
        assert main(["report", str(result), "--strict", "--out", str(out)]) == (3 if other else 0)
        page = outline(out.read_text(encoding="utf-8"))
        certificate = next(own for own in page.all("div") if own.all("dt") and own.all("dt")[0].text == "Certificate")
        assert ("Bounds of 1 row" in page.text) == (row >= 0)
        assert ("not the best estimate" in certificate.text) == other


@every("unit", [1.0, 1e-9])
def test_an_exact_figure_that_was_changed_is_noticed_in_any_unit(unit: float) -> None:
    folder = Path(tempfile.mkdtemp())
    noisy, result, out = (folder / name for name in ("noisy.csv", "result.csv", "page.html"))
    figures = pl.DataFrame({"sex": ["*", "f", "m"], "value": [12.0, 5.0, 8.0], "std_error": [0.0, 1.0, 1.0]})
    figures.with_columns(pl.col("value", "std_error") * unit).write_csv(noisy)
    assert main(["estimate", str(noisy), "--digits", "all", "--out", str(result)]) == 0
    written = pl.read_csv(result)
    for moved in (0.0, 0.5 * unit):
        exact = (pl.col("std_error") == 0).cast(pl.Float64)
        written.with_columns(pl.col("estimate", "lower", "upper") + moved * exact).write_csv(result)
        assert main(["report", str(result), "--measured", str(noisy), "--out", str(out)]) == 0
        assert ("not the best estimate" in out.read_text(encoding="utf-8")) == (moved > 0)
