"""``blue-solvers estimate`` of two products of the same blocks, from files to answers, beside dense least squares."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.results import Result
from blue_solvers.results.checksums import read_json_object
from tests.helpers.census_pair import CensusPair, blocks_of, write_pair
from tests.helpers.census_products import DHC_PERSONS, Product
from tests.helpers.dense_algebra import best
from tests.helpers.refused_commands import commands, refusal

BOTH = ["--settings", "pl94_us_persons", "--settings", "dhc_us_persons", "--names", "PL94,DHC"]
KEPT = ["--variables", "sex,hispanic"]
EMPTY = (2, 5)  # blocks without housing units and facilities
OF_SEX, OF_ORIGIN = 2, 2


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> CensusPair:
    return write_pair(tmp_path_factory.mktemp("pair"), [4, 3], 4, EMPTY)


@pytest.fixture(scope="module")
def first_run(pair: CensusPair, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where both products are estimated, and what that said."""
    out = tmp_path_factory.mktemp("stored") / "both"
    return out, said_by([*pair.folders, *BOTH, "--out", str(out)])


@pytest.fixture(scope="module")
def stored(first_run: tuple[Path, str]) -> Path:
    return first_run[0]


def said_by(words: list[str]) -> str:
    """What the command prints."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(["estimate", *words, *KEPT, "--desired", "sex * hispanic", "--desired", "hispanic"]) == 0
    return out.getvalue()


def sums_of(product: Product, query: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cells of a query that count together, and which of sex and origin they count, as far as it tells these."""
    cells, shape = product.cells(product.said(query))
    sizes = tuple(product.sizes.values())
    index = np.unravel_index(np.arange(int(np.prod(sizes))), sizes)
    names = list(product.sizes)
    sex = index[names.index("sex")] if "sex" in names else None
    origin = index[names.index("hispanic")]
    tells_sex = sex is not None and shape[names.index("sex")] > 1
    tells_origin = shape[names.index("hispanic")] > 1
    found = []
    for s in range(OF_SEX) if tells_sex else [None]:
        for h in range(OF_ORIGIN) if tells_origin else [None]:
            chosen = np.ones(cells.size, bool)
            chosen &= (sex == s) if s is not None else True
            chosen &= (origin == h) if h is not None else True
            counted = np.ones((OF_SEX, OF_ORIGIN))
            if s is not None:
                counted *= np.eye(OF_SEX)[s][:, None]
            if h is not None:
                counted *= np.eye(OF_ORIGIN)[h]
            found.append((np.flatnonzero(np.bincount(cells[chosen], minlength=cells.max() + 1)), counted.ravel()))
    return found


class Dense:
    """The best linear unbiased estimate of counts by block, sex and origin, from what files hold, summed to these."""

    def __init__(self, pair: CensusPair) -> None:
        blocks = len(pair.geoids)
        rows, values, variances = [], [], []
        sums: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
        for name, _, query, product, inside, noisy, variance in pair.measured():
            if (name, query) not in sums:  # a million cells are gone through
                sums[name, query] = sums_of(product, query)
            for own, counted in sums[name, query]:
                rows.append(np.kron(inside, counted))
                values.append(noisy.ravel()[own].sum())
                variances.append(variance * own.size)
        known = [
            np.kron(np.ones(blocks), np.ones(4)),
            *(np.eye(4 * blocks)[4 * i + j] for i in EMPTY for j in range(4)),
        ]
        C, c = np.stack(known), np.array([pair.truth().sum(), *np.zeros(4 * len(EMPTY))])
        cells, self.covariance = best(np.stack(rows), np.array(variances), np.array(values), (C, c))
        self.estimate = cells.reshape(blocks, OF_SEX, OF_ORIGIN)

    def std_error(self, weights: np.ndarray) -> float:
        """Of a sum with weights (blocks, sex, origin)."""
        return float(np.sqrt(max(weights.ravel() @ self.covariance @ weights.ravel(), 0.0)))


@pytest.fixture(scope="module")
def dense(pair: CensusPair) -> Dense:
    return Dense(pair)


def weights_of(inside: list[bool] | np.ndarray, cells: np.ndarray | None = None) -> np.ndarray:
    whole = np.ones((OF_SEX, OF_ORIGIN)) if cells is None else cells
    return np.asarray(inside, float)[:, None, None] * whole


def test_what_is_stored_is_the_best_estimate_of_both(pair: CensusPair, stored: Path, dense: Dense) -> None:
    result, blocks = Result(stored), pair.written["DHC"].blocks
    assert result.spine.levels == DHC_PERSONS.geolevels
    for number, level in enumerate(DHC_PERSONS.geolevels):
        table = next(own for own in result.stored_tables(level) if own.name in ("detailed", "sex * hispanic"))
        members = result.members(level)
        estimate, error = result.stored(level, table, np.arange(members.size))
        for rank, geounit in enumerate(members.tolist()):
            inside = [block.codes[number] == result.spine.geocodes[geounit] for block in blocks]
            np.testing.assert_allclose(estimate[rank], dense.estimate[inside].sum(axis=0).ravel(), atol=1e-7)
            cells = np.eye(4).reshape(4, OF_SEX, OF_ORIGIN)
            expected = [dense.std_error(weights_of(inside, cell)) for cell in cells]
            np.testing.assert_allclose(error[rank], expected, rtol=1e-7, atol=1e-7)


@pytest.fixture(scope="module", params=["both", pytest.param("DHC", marks=pytest.mark.slow)])
def runs(
    request: pytest.FixtureRequest,
    pair: CensusPair,
    first_run: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, str, str]:
    """Where a run of both products or of one is, and what it says: in short, and when asked for all."""
    folder = tmp_path_factory.mktemp("said")
    if request.param == "both":
        given, short = [*pair.folders, *BOTH], first_run[1]
    else:
        given = [pair.folders[1], "--settings", "dhc_us_persons"]
        short = said_by([*given, "--out", str(folder / "short")])
    return folder / "long", short, said_by([*given, "--out", str(folder / "long"), "--verbose"])


def test_the_command_says_what_became_of_the_rows_of_both(pair: CensusPair, runs: tuple[Path, str, str]) -> None:
    parts = runs[1].split("product    ")[1:]
    assert not parts or parts[0].startswith("PL94\n")
    assert not parts or parts[1].startswith("DHC, at whose geolevels tables are stored\n")
    for part, name in zip(parts or [runs[1]], ("PL94", "DHC") if parts else ("DHC",), strict=True):
        for kind in ("DPQuery", "Constraint"):
            count = sum(rows for (_, own), rows in pair.written[name].rows.items() if own == kind)
            rows = next(line for line in part.splitlines() if line.startswith("rows "))
            assert f"{kind}: {count:,} read" in rows
    assert "proved: " in runs[1]
    assert "fits: all tables" in runs[1]


def test_a_census_run_is_said_on_one_screen_and_all_of_it_when_asked(runs: tuple[Path, str, str]) -> None:
    out, short, full = runs[0], *(said.splitlines() for said in runs[1:])
    assert len(short) <= 24
    assert {"observed", "tied", "proved:", "fit", "rows", "variances"} <= {line.split()[0] for line in short}
    assert len(full) > 200
    kept = {line for line in short if "--verbose" not in line and not line.startswith("written")}
    assert kept <= set(full)
    stored = read_json_object(out / "result.json")
    products_read = [stored, *(stored["joined"]["others"] if "joined" in stored else [])]
    unused = [line for line in full if line.startswith("not used")]
    assert len(unused) == sum(len(read["read"]["unused"]) for read in products_read)


@pytest.mark.few(0)
def test_variables_that_zeros_tell_apart(pair: CensusPair, tmp_path: Path) -> None:
    """Facilities that are not there, in block groups that cross: by relationship alone, from the equations."""
    words = ["--variables", "relgq", "--desired", "hhgq8lev", "--no-fit", "--out", str(tmp_path / "out")]
    assert main(["estimate", *pair.folders, *BOTH, *words]) == 0
    result, truth = Result(tmp_path / "out"), pair.truth(0)
    labels = result.schema.labels_of("hhgq8lev")
    counts = [{"hhgq8lev": [labels[kind]]} for kind in (0, 2)]
    answers = result.ask_places(blocks_of(result, pair.geoids), counts)
    for i, answer in enumerate(answers.values()):
        expected = np.array([truth[i, :18].sum(), truth[i, 24:27].sum()])
        assert (np.abs(answer.estimate - expected) <= 5 * answer.std_errors + 1e-6).all()
        if not pair.written["DHC"].blocks[i].facilities[6:9].any():
            assert answer.estimate[1] == pytest.approx(0, abs=1e-7)
            assert answer.std_errors[1] == pytest.approx(0, abs=1e-5)


def test_a_joint_result_that_was_changed_is_refused(
    pair: CensusPair, stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copied = tmp_path / "copied"
    for path in stored.rglob("*"):
        if path.is_file():
            place = copied / path.relative_to(stored)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    changed = copied / "joined" / "0" / "variances.parquet"
    pl.read_parquet(changed).with_columns(pl.col("variance") * 2).write_parquet(changed)
    capsys.readouterr()
    said = refusal(capsys, "query", str(copied), "--table", "P4", "--geoid", pair.geoids[0])
    assert "joined/0/variances.parquet" in said
    assert said.count("\n") == 1


def test_empty_blocks_have_no_error(pair: CensusPair, stored: Path, tmp_path: Path) -> None:
    """Zeros of whole geounits, where the variables that tell them apart are summed out, hold in questions too."""
    words = ["--variables", "sex,hispanic", "--desired", "sex", "--out", str(tmp_path / "out")]
    assert main(["estimate", pair.folders[1], "--settings", "dhc_us_persons", *words]) == 0
    for result, most in ((Result(tmp_path / "out"), 0.0), (Result(stored), 1e-6)):
        answers = result.ask_places(blocks_of(result, pair.geoids), [{"sex": ["0"]}])
        assert [i for i, answer in enumerate(answers.values()) if answer.std_errors[0] <= most] == list(EMPTY)


TWO, NAMED = " ".join(BOTH[:4]), " ".join(BOTH)
WHOLE = " ".join([*BOTH, *KEPT])
REFUSED = commands(f"""
PL94 --names PL94 => --names is for several inputs:
PL94 nowhere => No such file or directory
PL94 table.csv => is a folder and
PL94 stored {NAMED} => is a result of estimate
PL94 DHC => has no settings.toml: give --settings
PL94 DHC --settings pl94_us_persons => --settings is given 1 times for 2 inputs
PL94 DHC {TWO} --names a => --names has 1 names for 2 inputs
PL94 DHC {TWO} --names a,a => 2 inputs are called 'a': tell them apart by --names
PL94 PL94 {TWO} => 2 inputs are called 'US_Person_PL_PROD'
PL94 DHC {NAMED} --variables sex,colour => there is no variable 'colour': there are relgq, sex
PL94 DHC {NAMED} --variables sex => product 'PL94' tells nothing of sex: keep one of relgq and
PL94 DHC {WHOLE} --schema x.toml => --schema is for files of tables
PL94 DHC {WHOLE} --level 0.9 => --level is for files of tables
PL94 DHC {WHOLE} --within 99 => 99
PL94 DHC {WHOLE} --desired colour => colour
PL94 elsewhere {WHOLE} => the leaves of problem 'PL94' and problem 'DHC' differ, problem 'DHC' has
PL94 DHC --settings pl94_us_persons --settings pl94_us_units --names a,b => no schema refines the others
table.csv table.csv --variables sex => --variables is for folders of measurement files
table.csv table.csv => 2 inputs are called 'table'
PL94 DHC {WHOLE} --totals t.csv => --totals is for one input: here are 2
PL94 DHC {WHOLE} --plot t.png => --plot is for files of tables: the inputs are folders
table.csv table.csv --names a,b --columns c=note => must be an input and a column of it, moe=moe_90, a:moe=moe_90
table.csv --same a=b => --same is for several inputs:
table.csv --schema a.toml --schema b.toml => --schema is given 2 times for one input
table.csv table.csv --names a,b --total T => --total must be an input and a mark of it, T, a:T
""")


@pytest.mark.few(4)
@pytest.mark.parametrize(("words", "told"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(
    words: list[str],
    told: str,
    pair: CensusPair,
    stored: Path,
    elsewhere: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    (tmp_path / "table.csv").write_text("table,sex,value,variance\nsex,f,3,1\nsex,m,4,1\n")
    places = {"PL94": pair.folders[0], "DHC": pair.folders[1], "stored": str(stored), "elsewhere": str(elsewhere)}
    places |= {name: str(tmp_path / name) for name in ("table.csv", "nowhere")}
    out = str(tmp_path / ("out.csv" if words[0] == "table.csv" else "out"))
    before = sorted(tmp_path.iterdir())
    assert main(["estimate", *(places.get(word, word) for word in words), "--out", out]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert told in said[-1]
    assert len([line for line in said if not line.endswith("so far")]) == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DHC persons of one tract less."""
    return write_pair(tmp_path_factory.mktemp("elsewhere"), [4], 9).demographic


def test_what_is_there_is_not_overwritten(pair: CensusPair, stored: Path, capsys: pytest.CaptureFixture) -> None:
    before = json.loads((stored / "result.json").read_text())
    assert "it is there already" in refusal(capsys, "estimate", *pair.folders, *BOTH, *KEPT, "--out", str(stored))
    assert json.loads((stored / "result.json").read_text()) == before


def survey(path: Path, variable: str, yes: int, no: int) -> str:
    path.write_text(f"table,{variable},value,variance\n{variable},yes,{yes},1\n{variable},no,{no},1\n")
    return str(path)


def test_non_negative_counts_and_a_picture_of_several_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, count in (("first", 1), ("second", 4)):
        survey(tmp_path / f"{name}.csv", "owner", -count, 60 + count)
    inputs, out = [str(tmp_path / f"{name}.csv") for name in ("first", "second")], tmp_path / "both.csv"
    words = ["--nonnegative", "nnls", "--plot", str(tmp_path / "fit.png"), "--out", str(out)]
    assert main(["estimate", *inputs, *words]) == 0
    frame = pl.read_csv(out)
    assert frame["estimate"].to_list() == pytest.approx([62.5, -2.5] * (frame.height // 2))
    assert frame["nonnegative"].to_list() == pytest.approx([62.5, 0.0] * (frame.height // 2), abs=1e-6)
    assert (tmp_path / "fit.png").stat().st_size


def test_an_input_that_is_a_copy_of_another_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = "a,value,std_error\n*,3103,30\nx,1951,20\ny,1149,20\n"
    for name in ("first.csv", "second.csv"):
        (tmp_path / name).write_text(rows)
    command = ["estimate", *(str(tmp_path / name) for name in ("first.csv", "second.csv"))]
    assert main([*command, "--out", str(tmp_path / "both.csv")]) == 0
    assert "have the same values in all 3 cells that both measured: is one a copy?" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "strict.csv"), "--strict"]) == 3
    assert "is one a copy?" in capsys.readouterr().err


def test_variables_are_the_same_by_name_and_labels_or_because_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    owners, hispanics = survey(tmp_path / "a.csv", "owner", 14, 6), survey(tmp_path / "b.csv", "hispanic", 5, 15)
    out = tmp_path / "both.csv"
    for words, named in (
        ([], "'owner'"),
        (["--same", "ower=hispanic"], "'ower'"),
        (["--same", "owner=hispnic"], "'hispnic'"),
        (["--same", "owner=hispanic", "--same", "owner=owner"], "'owner'"),
    ):
        assert named in refusal(capsys, "estimate", owners, hispanics, *words, "--out", str(out))
        assert not out.exists()
    assert main(["estimate", owners, hispanics, "--same", "owner=hispanic", "--out", str(out)]) == 0
    assert "owner is hispanic" in capsys.readouterr().out
    assert sorted(pl.read_csv(out)["estimate"]) == pytest.approx([9.5, 9.5, 10.5, 10.5])
    again = survey(tmp_path / "c.csv", "owner", 16, 4)
    assert main(["estimate", owners, again, "--out", str(out)]) == 0
    assert capsys.readouterr().out.count(": owner\n") == 2
    assert sorted(pl.read_csv(out)["estimate"]) == pytest.approx([5, 5, 15, 15])


def test_what_stands_for_totals_and_for_nothing_is_said_of_every_table(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    first, second, out = tmp_path / "first.csv", tmp_path / "second.csv", tmp_path / "out.csv"
    first.write_text("sex,value,std_error\nT,1004,10\nf,520,6\nm,490,6\n")
    second.write_text("sex,value,std_error\nTotal,1010,10\nf,515,6\nm,(D),(D)\n")
    command = ["estimate", str(first), str(second), "--out", str(out)]
    for marks, said in (
        ([], "does 'T' count everybody"),
        (["--total", "first:T"], "value '(D)' is not a number"),
        (["--total", "third:T"], "--total names input 'third': there are 'first', 'second'"),
        (["--total", "first:T", "--suppressed", "second:"], "value '(D)' is not a number"),
    ):
        assert said in refusal(capsys, *command, *marks)
    assert main([*command, "--total", "first:T", "--suppressed", "second:(D)"]) == 0
    M = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [1, 0]])
    people, inverse = best(M, np.array([100.0, 36, 36, 100, 36]), np.array([1004.0, 520, 490, 1010, 515]))
    frame = pl.read_csv(out)
    for sex, weights in (("f", [1, 0]), ("m", [0, 1]), ("*", [1, 1])):
        own = np.array(weights)
        expected = [own @ people, np.sqrt(own @ inverse @ own)]
        for row in frame.filter(sex=sex).select("estimate", "std_error").iter_rows():
            assert row == pytest.approx(expected)
