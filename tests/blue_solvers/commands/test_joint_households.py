"""``blue-solvers estimate --only``: households and units beside persons, from files to answers, and dense algebra."""

from itertools import product as each
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.results import Result
from blue_solvers.results.checksums import read_json_object
from constraint_builders.description.table import parse_table
from constraint_builders.files import read_settings, write_schema_file
from tests.helpers.census_units import BLOCKS, LEVELS, MEASURED, Place, cells, codes, geoids, write_place
from tests.helpers.every import every
from tests.helpers.refused_commands import exit_code

PRODUCTS = ("persons", "households", "units")
TIES = ["--only", "households:relgq=0|1", "--only", "units:relgq=0|1", "--beside", "units:h1=vacant", "--own", "size"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return write_place(tmp_path_factory.mktemp("place"), 5)


@pytest.fixture(scope="module")
def stored(place: Place) -> dict[str, Path]:
    """The joint result at the geolevels of every product."""
    found = {name: place.folder / f"at {name}" for name in PRODUCTS}
    for name, out in found.items():
        at = [] if name == "persons" else ["--at", name]
        assert main(["estimate", *place.inputs(*PRODUCTS), *TIES, *at, "--out", str(out)]) == 0
    return found


def inside(product: str, level: int, code: str) -> np.ndarray:
    return np.array([own[level] == code for own in codes(product)], dtype=float)


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_stored_is_the_best_estimate_of_all(name: str, place: Place, stored: dict[str, Path]) -> None:
    """Of every table that the product measured, at every place, with its standard error."""
    x, covariance = place.dense(*PRODUCTS)
    result = Result(stored[name])
    assert result.spine.levels == tuple(LEVELS)
    for (number, level), table in each(enumerate(LEVELS), MEASURED[name]):
        own, members = parse_table(result.schema, table), result.members(level)
        estimate, error = result.stored(level, own, np.arange(members.size))
        for rank, geounit in enumerate(members.tolist()):
            M = np.kron(inside(name, number, result.spine.geocodes[geounit]), cells(name, table))
            np.testing.assert_allclose(estimate[rank], M @ x, atol=1e-8)
            np.testing.assert_allclose(error[rank], np.sqrt(np.diag(M @ covariance @ M.T)), atol=1e-8)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("persons", {"relgq": [{"relgq": ["0", "1"]}, {"relgq": ["2"]}, {}], "relgq * sex": [{"sex": ["female"]}]}),
        ("households", {"size": [{}, {"size": ["three"]}], "sex * size": [{"sex": ["male"], "size": ["one", "two"]}]}),
        ("units", {"h1": [{}, {"h1": ["vacant"]}, {"h1": ["occupied"]}]}),
    ],
)
def test_questions_have_exact_errors(name: str, counts: dict, place: Place, stored: dict[str, Path]) -> None:
    """Over blocks of any product's groups, which are none of the spine's own."""
    x, covariance = place.dense(*PRODUCTS)
    result = Result(stored[name])
    groups = {f"{own} {group}": inside(own, 2, f"{codes(own)[0][1]}{group}") for own, group in each(PRODUCTS, (0, 1))}
    blocks = np.array([result.members("Block")[result.geounits("Block", [geoid])[0]] for geoid in geoids()])
    for table, wanted in counts.items():
        answers = result.ask_places({group: blocks[chosen > 0] for group, chosen in groups.items()}, wanted)
        factors = parse_table(result.schema, table).factors
        known = [result.schema.labels_of(factor) for factor in factors]
        rows = []
        for count in wanted:
            labels = [count.get(factor, result.schema.labels_of(factor)) for factor in factors]
            flags = [all(label in held for label, held in zip(cell, labels, strict=True)) for cell in each(*known)]
            rows.append(np.array(flags) @ cells(name, table))
        for group, chosen in groups.items():
            W = np.kron(chosen, np.array(rows))
            np.testing.assert_allclose(answers[group].estimate, W @ x, atol=1e-8)
            np.testing.assert_allclose(answers[group].covariance, W @ covariance @ W.T, atol=1e-8)


def test_rows_are_accounted_for_and_every_command_takes_the_result(
    place: Place, stored: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    x, covariance = place.dense(*PRODUCTS)
    said = read_json_object(stored["units"] / "result.json")
    assert said["format"] == 3
    reads = [said["read"], *(own["read"] for own in said["joined"]["others"])]
    assert sum(used for read in reads for _, _, _, used, _ in read["rows"]) == sum(
        len({own[number] for own in codes(name)}) * len(MEASURED[name])
        for name in PRODUCTS
        for number in range(len(LEVELS))
    )
    capsys.readouterr()
    rows, page = tmp_path / "rows.parquet", tmp_path / "page.html"
    out = str(stored["units"])
    assert main(["tables", out]) == 0
    assert "H1" in capsys.readouterr().out
    assert main(["query", out, "--table", "H1", "--geolevel", "block", "--out", str(rows)]) == 0
    frame = pl.read_parquet(rows).filter(pl.col("line") == "H1_003N")
    M = np.kron(np.eye(BLOCKS), cells("units", "h1")[:1])
    np.testing.assert_allclose(frame["estimate"], M @ x, atol=1e-8)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(np.diag(M @ covariance @ M.T)), atol=1e-8)
    assert main(["query", out, "--table", "H1_003N", "--over", "H1_001N", "--geolevel", "tract"]) == 0
    for name in PRODUCTS:
        count = {"persons": "relgq=0|1", "households": "size=two", "units": "h1=vacant"}[name]
        assert main(["query", str(stored[name]), "--count", count, "--geolevel", "Group", "--all"]) == 0
        assert main(["info", str(stored[name])]) == 0
        assert main(["report", str(stored[name]), "--out", str(page)]) == 0
        assert "proved" in capsys.readouterr().out


def block_names() -> list[str]:
    """Of the blocks in tables, where a place lies in those whose code its own begins with."""
    return [f"{codes('persons')[0][1]}{block}" for block in "abcdef"]


def write_tables(folder: Path, place: Place) -> tuple[list[str], Place]:
    """The same measurements as long tables, with their schemas, but for groups, which cross; and what they say."""
    words, kept = [], Place(folder)
    for name in PRODUCTS:
        settings = read_settings(place.folder / name / "settings.toml")
        rows, number, own = [], 0, codes(name)
        for depth, level in enumerate(LEVELS):
            for code in dict.fromkeys(block[depth] for block in own):
                for table in MEASURED[name]:
                    factors = [] if table == "total" else table.split(" * ")
                    for cell in each(*(settings.schema.labels_of(factor) for factor in factors)):
                        told = dict(zip(factors, cell, strict=True))
                        labels = [told.get(variable, "*") for variable in settings.schema.names]
                        geocode = block_names()[[b[-1] for b in own].index(code)] if depth == 3 else code
                        if level != "Group":
                            value, variance = place.values[name][number], place.variances[name][number]
                            rows.append((table, *labels, level, geocode, value, variance))
                            kept.rows.setdefault(name, []).append(place.rows[name][number])
                            kept.values.setdefault(name, []).append(value)
                            kept.variances.setdefault(name, []).append(variance)
                        number += 1
        columns = ["table", *settings.schema.names, "geolevel", "geocode", "value", "variance"]
        pl.DataFrame(rows, schema=columns, orient="row").write_csv(folder / f"{name}.csv")
        write_schema_file(folder / f"{name}.toml", settings.schema)
        words.append(str(folder / f"{name}.csv"))
    return [*words, *(word for name in PRODUCTS for word in ("--schema", str(folder / f"{name}.toml")))], kept


@pytest.mark.parametrize("desired", [(), ("relgq", "size", "h1", "sex", "total")])
def test_tables_in_files(desired: tuple[str, ...], place: Place, tmp_path: Path) -> None:
    """Rows come back in terms of the inputs, with a column for every variable; every row beside dense algebra."""
    inputs, kept = write_tables(tmp_path, place)
    x, covariance = kept.dense(*PRODUCTS)
    out, words = tmp_path / "both.parquet", [word for table in desired for word in ("--desired", table)]
    assert main(["estimate", *inputs, *TIES, *words, "--out", str(out)]) == 0
    frame = pl.read_parquet(out)
    assert [name for name in frame.columns[:7] if name not in ("relgq", "sex", "h1", "size")] == [
        "table",
        "geolevel",
        "geocode",
    ]
    seen: dict[str, set[str]] = {}
    for row in frame.iter_rows(named=True):
        level, _, name = row["geolevel"].removesuffix(")").partition(" (")
        depth, table = LEVELS.index(level), row["table"]
        seen.setdefault(name, set()).add(table)
        own = codes(name)
        names = block_names() if depth == 3 else [block[depth] for block in own]
        chosen = np.array([code == row["geocode"] for code in names], dtype=float)
        assert chosen.any()
        schema = read_settings(place.folder / name / "settings.toml").schema
        factors = [] if table == "total" else table.split(" * ")
        M = cells(name, table).reshape(*(schema.size_of(own) for own in factors), -1)
        for factor in factors:
            M = M[schema.labels_of(factor).index(row[factor])]
        assert {row[variable] for variable in ("relgq", "sex", "h1", "size") if variable not in factors} <= {"*"}
        w = np.kron(chosen, M)
        assert row["estimate"] == pytest.approx(w @ x, abs=1e-8)
        assert row["std_error"] == pytest.approx(np.sqrt(w @ covariance @ w), abs=1e-8)
    if desired:
        everywhere = {"total"}
        expected = {"persons": {"relgq", "sex"}, "households": {"size", "sex"}, "units": {"h1"}}
        assert seen == {name: everywhere | own for name, own in expected.items()}
    else:
        assert seen == {name: set(tables) for name, tables in MEASURED.items()}


HOUSEHOLDS = "--only households:relgq=0|1 --own size"
REFUSED = [  # inputs and words, and what is said
    ("persons households --only homes:relgq=0", "--only names input 'homes': there are 'persons', 'households'"),
    ("persons households --only households:colour=0 --own size", "'colour' is not a variable or recode"),
    ("persons households --only households:relgq=7 --own size", "'relgq' has no level '7': there are 0, 1, 2, 3"),
    ("persons households --only households", "must be an input, a factor and its labels"),
    ("persons households --only households:relgq=0|1", "variable 'size' has 3 levels, and the finer schema has none"),
    ("persons households --own size", "--own is of inputs that count some people alone: give --only too"),
    ("persons households --beside households:size=one", "--beside is of inputs that count some people alone"),
    (f"persons households {HOUSEHOLDS} --only households:relgq=2", "--only says 'relgq' of 'households' twice"),
    (f"persons households --only persons:relgq=0 {HOUSEHOLDS}", "names all products"),
    (f"persons households {HOUSEHOLDS} --own sex", "'sex' is in the finest schema already"),
    (f"persons households {HOUSEHOLDS},colour", "has a variable 'colour' of its own"),
    (f"persons households {HOUSEHOLDS} --desired size", "product 'persons': table 'size'"),
    (f"persons households {HOUSEHOLDS} --desired all", "name those desired"),
    (f"persons households {HOUSEHOLDS} --variables sex,size", "'relgq' tells apart what products count: keep it"),
    (f"persons households {HOUSEHOLDS} --at homes", "--at names input 'homes'"),
    ("persons units --only units:relgq=0|1 --beside units:h1=vacant|occupied", "names all labels of 'h1'"),
    ("persons units --only units:relgq=0|1 --beside units:h1=empty", "'h1' has no level"),
    (
        f"persons households units {' '.join(TIES[:6])} --beside households:size=one --own size",
        "labels of one variable",
    ),
]


@every(("asked", "told"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(
    asked: str, told: str, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, words = tmp_path / "out", asked.split()
    number = next(i for i, word in enumerate(words) if word.startswith("--"))
    assert exit_code(["estimate", *place.inputs(*words[:number]), *words[number:], "--out", str(out)]) == 2
    assert told in capsys.readouterr().err.strip().splitlines()[-1]
    assert not out.exists()
