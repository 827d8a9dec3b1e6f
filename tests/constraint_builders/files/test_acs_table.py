"""Tables of the American Community Survey, in both forms that data.census.gov gives: invented ones, read back."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, read_tables
from tests.helpers.effort import examples

Line = tuple[str, ...]
MARGINS = {"*****": 0.0, "-555555555": 0.0, "**": np.inf, "(X)": np.inf, "-222222222": np.inf, "": np.inf}
Z = 1.6448536269514722


def product_lines(shape: list[int]) -> list[Line]:
    lines: list[Line] = [()]
    for depth, size in enumerate(shape):
        lines += [(*line, f"{'abc'[depth]}{i}") for line in lines if len(line) == depth for i in range(size)]
    return sorted(lines)


def tree_lines(rng: np.random.Generator) -> list[Line]:
    """A tree whose lines have other parts at one depth, with labels that occur twice."""
    lines: list[Line] = [(), ("a",), ("b",), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "e"), ("b", "f")]
    for leaf in lines[3:]:
        if rng.random() < 0.4:
            lines += [(*leaf, f"g{i}") for i in range(int(rng.integers(2, 4)))]
    return sorted([*lines, ("h",)])


def counts_of(lines: list[Line], rng: np.random.Generator) -> dict[Line, int]:
    leaves = [line for line in lines if not any(other[:-1] == line for other in lines if other)]
    own = {leaf: int(rng.integers(0, 5000)) for leaf in leaves}
    return {line: sum(n for leaf, n in own.items() if leaf[: len(line)] == line) for line in lines}


def in_columns(lines: list[Line], places: dict[str, str], cell: dict) -> pl.DataFrame:
    """As files of data are: codes for columns, and labels in the first row."""
    labels = {"GEO_ID": "Geography", "NAME": "Geographic Area Name"}
    columns = {"GEO_ID": list(places), "NAME": list(places.values())}
    for number in range(len(lines)):
        colon = ":" if any(other[:-1] == lines[number] for other in lines if other) else ""
        label = "!!".join(("Total:", *(f"{part}:" for part in lines[number][:-1]), *lines[number][-1:])) + colon
        for mark, kind, k in (("M", "Margin of Error", 1), ("E", "Estimate", 0), ("EA", "Annotation of Estimate", 0)):
            name = f"B01001_{number + 1:03}{mark}"
            labels[name] = f"{kind}!!{label.replace('::', ':')}"
            columns[name] = [cell[place, lines[number]][k] if mark != "EA" else "null" for place in places]
    return pl.DataFrame({name: [labels[name], *own] for name, own in columns.items()})


def in_rows(lines: list[Line], places: dict[str, str], cell: dict) -> pl.DataFrame:
    """As tables are shown: indented by spaces that do not break, and with thousands."""
    columns = {"Label (Grouping)": ["\u00a0" * 4 * len(line) + (line[-1] if line else "Total") + ":" for line in lines]}
    for place, name in places.items():
        told = [cell[place, line] for line in lines]
        columns[f"{name}!!Estimate"] = [f"{int(own):,}" if own.isdigit() else own for own, _ in told]
        columns[f"{name}!!Margin of Error"] = [f"\u00b1{int(own):,}" if own.isdigit() else own for _, own in told]
    return pl.DataFrame(columns)


@examples(60, 6)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    nested=st.booleans(),
    places=st.integers(1, 3),
    shown=st.booleans(),
    seed=st.integers(0, 999),
)
def test_every_line_is_the_sum_that_it_is(shape: list[int], nested: bool, places: int, shown: bool, seed: int) -> None:
    """Values are the sums of the problem's own leaves, and variances those of margins of 90 % or what marks say."""
    rng = np.random.default_rng(seed)
    lines = tree_lines(rng) if nested else product_lines(shape)
    names = {f"0500000US4400{i}": f"County {i}, Rhode Island" for i in range(places)}
    counts = {place: counts_of(lines, rng) for place in names}
    cell, variance = {}, {}
    for place in names:
        for line in lines:
            margin = str(rng.choice(list(MARGINS))) if rng.random() < 0.2 else str(int(rng.integers(1, 3000)))
            variance[place, line] = MARGINS[margin] if margin in MARGINS else (float(margin) / Z) ** 2
            cell[place, line] = str(counts[place][line]), margin
    frame = in_rows(lines, names, cell) if shown else in_columns(lines, names, cell)
    called = ["line"] if nested else ["sex", "age", "race"][: len(shape)]
    problem, y = read_tables(frame, style="acs", names_to=called)
    assert problem.schema.names == ((*(["place"] if places > 1 else []), *called))
    leaves = [line for line in lines if not any(other[:-1] == line for other in lines if other)]
    order = leaves if nested else sorted(leaves)
    detail = np.array([counts[place][line] for place in names for line in order], dtype=float)
    told = np.isfinite(y)
    np.testing.assert_array_equal(y[told], (problem.marginal_matrix() @ detail)[told])
    found = sorted(zip(y[told], problem.variances[told], strict=True))
    given_here = sorted((float(counts[place][line]), variance[place, line]) for place in names for line in lines)
    np.testing.assert_allclose([own for own in found if np.isfinite(own[1])],
                               [own for own in given_here if np.isfinite(own[1])])  # fmt: skip


def test_lines_of_one_depth_are_variables_and_others_recodes(tmp_path: Path) -> None:
    lines = [(), ("Car",), ("Car", "Alone"), ("Car", "Carpool"), ("Walked",)]
    cell = {("x", line): (n, "10") for line, n in zip(lines, ("100", "90", "70", "20", "10"), strict=True)}
    in_rows(lines, {"x": "Rhode Island"}, cell).write_csv(tmp_path / "table.csv")
    problem, y = read_tables(tmp_path / "table.csv", style="acs", names_to="means")
    assert problem.schema.labels_of("means") == ("Alone", "Carpool", "Walked")
    tables = problem.observed.tables(y)
    np.testing.assert_array_equal(tables["means_1"], [90, np.nan])
    np.testing.assert_array_equal(tables["means"], [70, 20, 10])
    sexes = [(), ("Male",), ("Female",)]
    cell = {("x", line): (n, "10") for line, n in zip(sexes, ("100", "48", "52"), strict=True)}
    problem, y = read_tables(in_rows(sexes, {"x": "Rhode Island"}, cell), style="acs")
    assert problem.schema == Schema({"line": ["Male", "Female"]})
    assert problem.variances == pytest.approx(3 * [(10 / Z) ** 2])
    problem, y = read_tables(in_rows([()], {"x": "Rhode Island"}, cell), style="acs")
    np.testing.assert_array_equal(y, [100])


def test_places_of_several_kinds_are_a_tree() -> None:
    codes = {"0400000US44": "Rhode Island", "0500000US44001": "Bristol", "0500000US44003": "Kent"}
    lines = [(), ("Male",), ("Female",)]
    n = {"0400000US44": (60, 30, 30), "0500000US44001": (40, 20, 20), "0500000US44003": (20, 10, 10)}
    cell = {(place, line): (str(n[place][i]), "9") for place in codes for i, line in enumerate(lines)}
    problem, y = read_tables(in_columns(lines, codes, cell), style="acs", names_to="sex")
    assert problem.spine.levels == ("state", "county")
    np.testing.assert_array_equal(problem.marginal_matrix() @ np.array([20.0, 20, 10, 10]), y)


def test_what_was_not_measured_is_said() -> None:
    lines = [(), ("Male",), ("Female",)]
    cell = {("x", ()): ("100", "5"), ("x", ("Male",)): ("-666666666", "-222222222"), ("x", ("Female",)): ("40", "**")}
    problem, y = read_tables(in_rows(lines, {"x": "Kent"}, cell), style="acs")
    assert np.isinf(problem.variances[1:]).all()
    assert np.isnan(y[1])
    assert any("1 estimates without a margin of error are not used" in doubt for doubt in notes(problem))


def notes(problem: Problem) -> tuple[str, ...]:
    return problem.understood.notes


GOOD = {"Label (Grouping)": ["Total:", "    Male", "    Female"], "x!!Estimate": ["3", "1", "2"],
        "x!!Margin of Error": ["1", "1", "1"]}  # fmt: skip
PARTED = {"Label (Grouping)": ["Total:", "  Male", "    Boys", "  Female"], "x!!Estimate": ["3", "1", "1", "2"],
          "x!!Margin of Error": ["1", "1", "1", "1"]}  # fmt: skip
REFUSED = {
    "rows": (
        {"GEO_ID": ["Geography"], "E": ["Estimate!!Total:"], "M": ["Margin of Error!!Total:"]},
        {},
        "there are no rows",
    ),
    "no places": ({"Label (Grouping)": ["Total:"]}, {}, "no column is one of estimates"),
    "no total": ({**GOOD, "Label (Grouping)": ["Median age", "    Male", "    Female"]}, {}, "is no part of a total"),
    "a number": ({**GOOD, "x!!Estimate": ["3", "one", "2"]}, {}, "row 2: 'one' is neither a number nor a mark"),
    "a margin": ({k: v for k, v in GOOD.items() if "Margin" not in k}, {}, "has no other beside it, 'x!!Margin"),
    "a negative count": ({**GOOD, "x!!Estimate": ["3", "-444444444", "2"]}, {}, "row 2: '-444444444' is below 0"),
    "a mark of margins": ({**GOOD, "x!!Estimate": ["3", "-555555555", "2"]}, {}, "row 2: '-555555555' is below 0"),
    "a negative margin": ({**GOOD, "x!!Margin of Error": ["3", "1", "-2"]}, {}, "row 3: '-2' is below 0"),
    "a line twice": (
        {
            "GEO_ID": ["", "x"],
            "a": ["Estimate!!Total:", "3"],
            "b": ["Margin of Error!!Total:", "3"],
            "c": ["Estimate!!Total", "4"],
        },
        {},
        "line 'Estimate!!Total' has two columns, 'a' and 'c'",
    ),
    "shares": (
        {k.replace("x", "x!!Percent"): v for k, v in GOOD.items()},
        {},
        "is one of several of a place, perhaps of",
    ),
    "a form": ({"place": ["x"], "B01001_001E": ["3"]}, {}, "neither a column 'Label' nor a second row of labels"),
    "parts": (
        {**GOOD, "Label (Grouping)": ["Total:", "  Male", "    Boys"]},
        {"names_to": ["sex", "a", "b"]},
        "name as",
    ),
    "a part": (PARTED, {}, "line 'Total > Male' has one part alone"),
    "names": (GOOD, {"names_to": ["sex", "age"]}, "lines lie 1 deep below 'Total': name as many variables"),
    "a style": (GOOD, {"style": "eurostat"}, "style must be 'acs' or 'sdmx'"),
    "marks": (GOOD, {"suppressed": ["N"]}, "give nothing beside it but names_to"),
    "a law": (GOOD, {"noise": "laplace"}, "give nothing beside it but names_to"),
    "a schema": (GOOD, {"schema": Schema({"sex": 2})}, "give nothing beside it but names_to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_table_is_refused(case: str) -> None:
    columns, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read_tables(pl.DataFrame(columns), **{"style": "acs", **options})


def test_a_table_of_one_place_needs_no_name_of_it() -> None:
    problem, y = read_tables(pl.DataFrame({k.removeprefix("x!!"): v for k, v in GOOD.items()}), style="acs")
    np.testing.assert_array_equal(y, [3, 1, 2])
    assert not notes(problem)


def test_a_part_alone_is_doubted() -> None:
    alone = pl.DataFrame({name: own[:2] for name, own in GOOD.items()})
    found, y = read_tables(alone.with_columns(pl.Series("x!!Estimate", ["3.0", "-666666666.0"])), style="acs")
    np.testing.assert_array_equal(y, [3, np.nan])
    assert "line 'Male' is taken for all that it is a part of: were other lines left out?" in notes(found)


def test_places_that_lie_in_others_without_codes_are_doubted() -> None:
    both = pl.DataFrame({**{k.replace("x", "United States"): v for k, v in GOOD.items()}, **GOOD})
    found, _ = read_tables(both, style="acs")
    assert any("a sum of places counts people twice" in note for note in notes(found))
    assert not notes(read_tables(pl.DataFrame(GOOD), style="acs")[0])


def test_the_sheet_of_a_workbook_is_said(tmp_path: Path) -> None:
    """Beside that of information, as data.census.gov writes them."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    rows = [["Label", "Rhode Island!!Estimate", "Rhode Island!!Margin of Error"]]
    rows += [["Total:", "1,050", "*****"], ["    Male:", "510", "±20"], ["    Female:", "545", "±20"]]
    with xlsxwriter.Workbook(tmp_path / "acs.xlsx") as book:
        for name, own in (("Information", [["Note: a survey"], ["Table", "B01001"]]), ("Data", rows)):
            page = book.add_worksheet(name)
            for number, row in enumerate(own):
                page.write_row(number, 0, row)
    with pytest.raises(ValueError, match="one sheet must hold a table: 'Information', 'Data' do; say sheet="):
        read_tables(tmp_path / "acs.xlsx", style="acs")
    problem, y = read_tables(tmp_path / "acs.xlsx", style="acs", names_to="sex", sheet="Data")
    assert (problem.observed.names, y.tolist()) == (("total", "sex"), [1050, 510, 545])


def test_a_table_whose_columns_have_the_names_alone_is_refused_by_name(tmp_path: Path) -> None:
    """One that somebody made longer."""
    path = tmp_path / "long.csv"
    path.write_text("Place,Label (Grouping),Estimate,Margin of Error\nRhode Island,Total:,9,±1\n")
    with pytest.raises(ValueError, match=r"long\.csv: no table of the American Community Survey: there is neither"):
        read_tables(path, style="acs")
