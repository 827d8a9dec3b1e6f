"""Files of published counts are read as their publisher writes them."""

from pathlib import Path

import pytest

from constraint_builders.files.published_files import PRODUCTS_IN, _segments, read_published
from constraint_builders.files.published_tables import published_tables
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

OF_THE_SITE = """"GEO_ID","NAME","P1_001N","P1_001NA","P0010002",
"Geography","Geographic Area Name"," !!Total:","Annotation of Total","One race",
"0100000US","United States","331449281",,"5",
"0400000US44","Rhode Island","1,097,379",,"12",
"1400000US44001030100","Census Tract 301; Bristol County; Rhode Island","4667","null","",
"1600000US4459000","Providence city, Rhode Island","190934","","2",
"7500000US440010301001000","Block 1000","0","","0",
"""


def test_a_table_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "P1.csv").write_text(OF_THE_SITE)
    found = read_published(tmp_path / "P1.csv")
    assert found.lines == ["P1_001N", "P1_002N"]
    assert found.counts.rows() == [
        ("US", 331_449_281, 5),
        ("44", 1_097_379, 12),
        ("44001030100", 4667, None),
        ("440010301001000", 0, 0),
    ]
    assert found.names["44"] == "Rhode Island"
    assert found.others == ("1600000US4459000",)
    assert found.labels == {"P1_001N": "Total", "P1_002N": "One race"}


def test_districts_are_told_from_counties_by_their_summary_levels(tmp_path: Path) -> None:
    text = "GEOID_ZCTA5_20,GEOID20,SUMLEV,P1_001N\n44003,44001,50,5\n44003,44003,610,6\n,US,10,7\n,44,,8\n"
    (tmp_path / "P1.csv").write_text(text)
    found = read_published(tmp_path / "P1.csv")
    assert (found.counts.rows(), found.others) == ([("44001", 5), ("US", 7)], ("44003", "44"))
    (tmp_path / "P1.csv").write_text("GEOCODE,GEO_ID,P1_001N\n44001,0500000US44001,5\n44003,610U900US44003,6\n")
    assert read_published(tmp_path / "P1.csv").counts.rows() == [("44001", 5)]


@every("code", ["07001", "43215", "10002", "90210", "00601", "13999", "44002"])
def test_codes_of_five_digits_that_no_county_has_are_not_taken_for_counties(tmp_path: Path, code: str) -> None:
    """ZIP codes and districts, whose other codes may be those of counties: 44001 is one in Ohio."""
    (tmp_path / "P1.csv").write_text(f"GEOID,P1_001N\n44001,5\n{code},6\n")
    with pytest.raises(ValueError, match=f"'{code}', which is no county: five digits may be ZIP codes or districts"):
        read_published(tmp_path / "P1.csv")
    (tmp_path / "P1.csv").write_text(f"GEOID,SUMLEV,P1_001N\n44001,50,5\n{code},860,6\n")
    assert read_published(tmp_path / "P1.csv").counts.rows() == [("44001", 5)]


def test_counties_of_every_kind_are_read(tmp_path: Path) -> None:
    codes = ["02016", "04012", "08014", "09110", "12086", "24510", "29186", "35006", "46102", "51036", "51840", "55078"]
    codes += ["60010", "72054"]
    (tmp_path / "P1.csv").write_text("".join(["GEOID,P1_001N\n", *(f"{code},5\n" for code in codes)]))
    assert read_published(tmp_path / "P1.csv").counts["geoid"].to_list() == codes


def test_thousands_are_read_as_their_file_writes_them(tmp_path: Path) -> None:
    (tmp_path / "P1.csv").write_text("geoid;P1_001N;P1_002N\nUS;331.449.281;1.234\n44;1.097.379;12\n")
    assert read_published(tmp_path / "P1.csv").counts.rows() == [("US", 331_449_281, 1_234), ("44", 1_097_379, 12)]


def segment(folder: Path, number: int, sizes: list[int], geoids: dict[str, str]) -> Path:
    """A segment and its geography, as the redistricting files of 2020 are: no header, names in Latin-1."""
    geography, counts = [], []
    for record, (geoid, name) in enumerate(geoids.items(), 1):
        row = [""] * 97
        row[7:9], row[87] = [f"{record:07}", geoid], name
        geography.append("|".join(row))
        own = [str(1000 * record + i) for i in range(sum(sizes))]
        counts.append("|".join(["PLST", "PR", "000", f"{number:02}", f"{record:07}", *own]))
    (folder / "prgeo2020.pl").write_bytes("\n".join(geography).encode("latin-1"))
    (folder / f"pr0000{number}2020.pl").write_text("\n".join(counts))
    return folder / f"pr0000{number}2020.pl"


def test_segments_of_the_redistricting_files(tmp_path: Path) -> None:
    geoids = {"0400000US72": "Puerto Rico", "0500000US72011": "Añasco Municipio", "0400001US72": "Urban"}
    found = read_published(segment(tmp_path, 2, [71, 73, 3], geoids))
    assert found.lines[0] == "P3_001N"
    assert found.lines[71:] == [f"P4_{i:03}N" for i in range(1, 74)] + ["H1_001N", "H1_002N", "H1_003N"]
    assert found.counts["geoid"].to_list() == ["72", "72011"]
    assert found.names["72011"] == "Añasco Municipio"
    assert found.counts.row(1)[1:] == tuple(range(2000, 2147))
    assert (found.labels["P3_002N"], found.labels["H1_003N"]) == ("Population of one race", "Vacant")
    assert read_published(segment(tmp_path, 1, [71, 73], geoids)).lines[71] == "P2_001N"
    assert read_published(segment(tmp_path, 3, [10], geoids)).lines[-1] == "P5_010N"
    segment(tmp_path, 3, [11], geoids)
    refuses(r"pr000032020\.pl: it has 16 columns, not 15", read_published, tmp_path / "pr000032020.pl")
    path = segment(tmp_path, 3, [10], geoids)
    (tmp_path / "prgeo2020.pl").write_text((tmp_path / "prgeo2020.pl").read_text("latin-1").replace("0000002", "9"))
    refuses(r"records are not those of prgeo2020\.pl", read_published, path)


@cases(
    ("place,P1_001N\na,1\n", "there is no column of GEOIDs such as 'GEO_ID' or 'geoid': there are 'place'"),
    ("geoid,P1_001N\n44,1\n0400000US44,2\n", "GEOID '44' is in several rows"),
    ("geoid,P1_001N,P0010001\n44,1,2\n", "line P1_001N is in two columns, the second 'P0010001'"),
    ("geoid;P1_001N\n44;1.234\n", "'1.234' may mean 1234 or 1.234"),
    ("geoid,P1_001N\n1001,5\n", "'1001' is that of no state, county, .*; leading zeros belong to it"),
    ("geoid,P1_001N\n44,many\n", "column 'P1_001N': 'many'"),
    ("geoid,P1_001N\n44,inf\n", "column 'P1_001N' holds 'inf' in row 2: a count is a number from 0 to"),
    ("geoid,P1_001N\n44,-5\n", "column 'P1_001N' holds '-5' in row 2: a count is a number from 0 to"),
)
def test_what_is_no_published_table_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        read_published(tmp_path / "wrong.csv")
    assert str(raised.value).startswith(str(tmp_path / "wrong.csv"))


def demographic(folder: Path, number: int, size: int, names: dict[str, str] | None = None) -> Path:
    """A segment of the demographic files of 2020 and its geography, whose names are in UTF-8."""
    path = segment(folder, number % 10, [size], names or {"0400000US72": "Puerto Rico", "0500000US72011": "Añasco"})
    geography = (folder / "prgeo2020.pl").read_text("latin-1")
    (folder / "prgeo2020.dhc").write_text(geography, encoding="utf-8")
    own = folder / f"pr000{number:02}2020.dhc"
    own.write_text(path.read_text().replace(f"|000|{number % 10:02}|", f"|000|{number:02}|"))
    return own


def test_segments_of_the_demographic_files(tmp_path: Path) -> None:
    """Tables lie where programs of others have them: P1 first of segment 5, P12 after 71 and 73 lines of 6."""
    found = read_published(demographic(tmp_path, 5, 199))
    assert found.counts["P1_001N"].to_list() == [1000, 2000]
    assert found.counts["P3_001N"].to_list() == [1005, 2005]  # P2, urban and rural, is of no table that is known
    assert not [line for line in found.lines if line.startswith("P2_")]
    assert found.names["72011"] == "Añasco"
    found = read_published(demographic(tmp_path, 6, 242))
    assert found.counts["P12_001N"].to_list() == [1000 + 71 + 73, 2000 + 71 + 73]
    assert found.labels["P12_003N"] == "Under 5 years"
    found = read_published(demographic(tmp_path, 8, 245))
    assert found.counts["P12B_001N"].to_list() == [1000 + 3 * 49, 2000 + 3 * 49]
    assert read_published(demographic(tmp_path, 21, 209)).lines[-1] == "PCT12_209N"


def test_segments_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = demographic(tmp_path, 44, 195)
    refuses(r"pr000442020\.dhc: its tables, PCT19, are not among those", read_published, path)
    with pytest.raises(ValueError, match=r"pr000452020\.dhc: there is no segment 45: they are 01 to 44"):
        read_published(path.rename(tmp_path / "pr000452020.dhc"))
    path = demographic(tmp_path, 22, 209).rename(tmp_path / "pr000212020.dhc")
    refuses(r"those of segment '22', and its name says 21: was it renamed\?", read_published, path)
    with pytest.raises(ValueError, match=r"it has 214 columns, not 15"):
        read_published(demographic(tmp_path, 21, 209).rename(tmp_path / "pr000032020.pl"))


def test_every_table_of_a_product_is_in_one_segment_with_all_of_its_lines() -> None:
    for ending, products in PRODUCTS_IN.items():
        listed = [table.split(":") for tables in _segments()[ending].values() for table in tables.split()]
        sizes = {name: int(size) for name, size in listed}
        assert len(sizes) == len(listed)
        for product in products:
            for table in published_tables(product).tables.values():
                assert sizes[table.name] == len(table.lines), table.name
    assert sum(sizes.values()) == 9_067  # as many as the table matrix has
