"""What goes wrong by itself in files of tables: one list, each with what must become of it.

A case is what it is, the file, flags of the command, and its end: `Refused` with the words that name it, `Named` with
the words that are printed beside estimates, or `Read` with the rows that are meant.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Refused(NamedTuple):
    words: str


class Named(NamedTuple):
    words: str


class Read(NamedTuple):
    """The rows that are meant: labels, ``*`` where all count, value and standard error; of geounits the code first."""

    rows: list[tuple]
    places: bool = False


class Case(NamedTuple):
    what: str
    content: str
    end: Refused | Named | Read
    flags: tuple[str, ...] = ()


SEXES = [("*", 1004, 10), ("f", 520, 6), ("m", 490, 6)]
RACES = [("*", 1004, 10), ("white", 600, 6), ("black", 250, 6), ("other", 160, 6)]
NO_TOTAL = RACES[1:]
BOTH = [
    ("*", "*", 2500, 5), ("f", "*", 1234.5, 4), ("m", "*", 1290, 4), ("f", "young", 600.25, 3), ("f", "old", 620, 3),
    ("m", "young", 700, 2), ("m", "old", 575, 2),
]  # fmt: skip
COUNTIES = [
    ("44", "*", 1000, 0), ("44", "f", 520, 12), ("44", "m", 500, 12), ("44001", "*", 600, 0), ("44001", "f", 300, 18),
    ("44001", "m", 280, 18), ("44003", "*", 400, 0), ("44003", "f", 150, 18), ("44003", "m", 230, 18),
]  # fmt: skip
STATE = "State,44,*,1000,0\nState,44,f,520,12\nState,44,m,500,12\n"


def csv(header: str, rows: list[tuple], delimiter: str = ",") -> str:
    lines = [header.split(","), *(list(map(str, row)) for row in rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines)


FLAT = csv("sex,value,std_error", SEXES)
RACE = csv("race,value,std_error", RACES)
TABLE = csv("sex,age,value,std_error", BOTH)
LEVELS = {2: "State", 5: "County"}
CROSSED = csv(
    "sex,race,value,std_error",
    [(s, r, n * k, 4) for s, k in (("f", 2), ("m", 1), ("Whole", 3)) for r, n in (("a", 90), ("b", 250))],
)
LONG = "table," + FLAT.replace("\n", "\nsex,", 3)
WITH_PARENTS = csv(
    "geolevel,geocode,parent,sex,value,std_error",
    [(LEVELS[len(row[0])], row[0], "" if row[0] == "44" else "44", *row[1:]) for row in COUNTIES],
)
PLACES = csv("geolevel,geocode,sex,value,std_error", [(LEVELS[len(row[0])], *row) for row in COUNTIES])
NAMES = {"44": "Rhode Island", "44001": "Bristol", "44003": "Kent"}
WIDE = "age,f,f_se,m,m_se,Total,total_se\nyoung,600.25,3,700,2,1310,5\nold,620,3,575,2,1190,5\n"
WIDE_ROWS = [*BOTH[3:], ("*", "young", 1310, 5), ("*", "old", 1190, 5)]
SEVERAL = csv("year,sex,value,std_error", [(2019, *row) for row in SEXES] + [(2020, *row) for row in SEXES])


SOURCES = "".join(
    [csv("sex,value,std_error,source", [(*row, "A") for row in SEXES]), *(f"{s},{y},{e},B\n" for s, y, e in SEXES)]
)


def coded(of: dict[str, str], text: str = PLACES) -> str:
    for old, new in of.items():
        text = text.replace(f",{old},", f",{new},")
    return text


def women(counts: dict[str, int], level: str = "County") -> str:
    return csv("geolevel,geocode,sex,value,std_error", [(level, code, "f", n, 3) for code, n in counts.items()])


def levels(counts: dict[str, int], error: int) -> str:
    return csv("level,value,std_error", [(label, value, error) for label, value in counts.items()])


def ages(levels: dict[str, int], total: int | None = None, error: int = 5) -> str:
    rows = [] if total is None else [("total", total, error)]
    return csv("age,value,std_error", rows + [(label, value, error) for label, value in levels.items()])


READ_AS_TOTALS = [
    "Total", "TOTAL", " total ", "Total:", "Total!!", "total.", "(Total)", "_T", "TOT", "Totals", "All", "Grand Total",
    "Overall", "Sum", "Everyone", "Insgesamt", "Zusammen", "GESAMT", "Summe", "Ensemble", "Total général", "Totale",
    "Tutti", "Suma", "Todos", "Totaal", "Totalt", "I alt", "Yhteensä", "Ogółem", "Razem", "Celkem", "Összesen",
    "Ukupno", "Итого", "Всего", "Σύνολο", "Toplam", "合計", "总计", "Gesamtergebnis", "Eindtotaal", "Tổng số", "insg.",
    "zus.", "Totales",
]  # fmt: skip
ASKED_ABOUT = [
    "T", "Persons", "Population", "-", "--", "Sub-total", "Subtotal", "Both sexes", "All persons", "Total population",
    "Men and women combined", "Subtotal women", "Sum of the above", "State", "Nationwide", "Alle Personen",
    "Beide Geschlechter", "All ages", "total, 16 and over",
]  # fmt: skip


def spellings() -> Iterator[Case]:
    """Some of them; `test_totals` reads all, and takes less than a command."""
    for mark in READ_AS_TOTALS[::8]:
        yield Case(f"a total called {mark!r}", FLAT.replace("*", mark), Read(SEXES))
    for mark in ASKED_ABOUT[::4]:
        yield Case(f"perhaps a total, {mark!r}", FLAT.replace("*", mark), Refused(f"does {mark!r} count everybody"))


TOTALS_AND_SUBTOTALS = [
    Case("no label for the total", FLAT.replace("*", ""), Refused("column 'sex' is empty in row 2")),
    Case("blanks for the total", FLAT.replace("*", '"  "'), Refused("column 'sex' has an empty label")),
    Case("a mark that is said", FLAT.replace("*", "T"), Read(SEXES), ("--total", "T")),
    Case(
        "a mark that is said of one of two columns",
        TABLE.replace("*,*", "T,*").replace("*", "Alle"),
        Read(BOTH),
        ("--total", "T"),
    ),
    Case(
        "coefficients of variation as shares, as a sheet holds those that it shows in per cent",
        csv("sex,value,cv_percent", [("total", 1000, 0.02), ("f", 520, 0.025), ("m", 481, 0.03)]),
        Named("every coefficient of variation is below 1 %: does 0.02 stand for 2 %"),
    ),
    Case(
        "women and all, but not men",
        csv("sex,value,std_error", [("total", 1000, 5), ("female", 520, 5)]),
        Refused("'female' alone beside totals, which would count as many: give all others rows"),
    ),
    Case(
        "women by age, and all",
        csv("sex,age,value,std_error", [("f", "young", 300, 5), ("f", "old", 200, 5), ("*", "*", 990, 5)]),
        Refused("'f' alone beside totals"),
    ),
    Case(
        "women and all, and men of whom nothing was published",
        csv("sex,value,std_error", [("total", 1000, 5), ("female", 520, 5), ("male", "", "inf")]),
        Read([("*", 1000, 5), ("female", 520, 5), ("male", "", "inf")]),
    ),
    Case(
        "a mark that is said, and a total of a name of its own in another column",
        csv(
            "sex,race,value,std_error",
            [(s, r, n * k, 4) for s, k in (("f", 2), ("T", 3)) for r, n in (("a", 90), ("b", 250), ("Whole", 340))],
        ),
        Refused("'Whole' counts as many"),
        ("--total", "T"),
    ),
    Case(
        "a mark that is said beside overlapping ranges",
        ages({"T": 1000, "0-4": 100, "0-17": 300, "18+": 700}),
        Refused("'0-17' and '0-4'"),
        ("--total", "T"),
    ),
    Case("a mark that is said and is not there", FLAT, Refused("'Tot' is said to count everybody"), ("--total", "Tot")),
    Case(
        "a total of a name of its own", RACE.replace("*", "Residents of X"), Refused("'Residents of X' counts as many")
    ),
    Case(
        "an uncertain whole",
        csv("race,value,std_error", [("Whole", 1004, 100), ("white", 400, 40), ("black", 350, 40), ("other", 260, 30)]),
        Named("'Whole' in column 'race' counts as many as all others together, within its noise"),
    ),
    Case(
        "a whole beside a part that was not measured",
        RACE.replace("*", "Whole").replace("other,160,6", "other,,"),
        Named("'Whole' in column 'race' counts as many as all others together, within its noise or what was not"),
    ),
    Case("a whole that is said", RACE.replace("*", "Whole"), Read(RACES), ("--total", "whole")),
    Case(
        "a level that is said to be one",
        RACE.replace("*", "Whole"),
        Read([("w", 1004, 10), *NO_TOTAL]),
        ("--total", "*"),
    ),
    Case("no total", RACE.replace("*,1004,10\n", ""), Read(NO_TOTAL)),
    Case("a total called 0", RACE.replace("*", "0"), Refused("'0' counts as many")),
    Case(
        "a group and its parts",
        csv(
            "origin,value,std_error",
            [
                ("total", 1000, 2),
                ("Hispanic", 200, 2),
                ("Not Hispanic", 799, 2),
                ("Not Hispanic: white", 600, 2),
                ("Not Hispanic: black", 203, 2),
            ],
        ),
        Refused("'Not Hispanic' is counted twice"),
    ),
    Case(
        "two variables in one column",
        csv(
            "group,value,std_error",
            [("total", 1000, 5), ("f", 520, 5), ("m", 485, 5), ("young", 300, 5), ("old", 690, 5)],
        ),
        Named("CONTRADICTORY"),
    ),
    Case("a total of a name of its own in one of two columns", CROSSED, Refused("'Whole' counts as many")),
    Case(
        "totals of counties alone",
        "geolevel,geocode,value,std_error\nCounty,44001,5,1\nCounty,44003,6,1\n",
        Refused("no column is a variable"),
    ),
    Case(
        "a row State among counties",
        "county,value,std_error\nState,1000,3\nKent,410,3\nBristol,390,3\nNewport,205,3\n",
        Refused("does 'State' count everybody"),
    ),
    Case(
        "a row of the state's name among counties",
        "county,value,std_error\nRhode Island,1000,3\nKent,410,3\nBristol,390,3\nNewport,205,3\n",
        Refused("'Rhode Island' counts as many as all others"),
    ),
    Case("two totals", RACE + "Gesamtbestand,1001,10\n", Named("CONTRADICTORY")),
    Case(
        "a subtotal by name",
        RACE.replace("1004", "1244").replace("black", "Asian,235,6\nChinese,130,6\nJapanese,100,6\nblack"),
        Named("CONTRADICTORY"),
    ),
    Case(
        "codes of three depths",
        levels({"1": 610, "11": 360, "111": 200, "112": 158, "12": 255, "2": 300}, 3),
        Refused("'1' counts as many as '11' and 1 more together"),
    ),
    Case(
        "a subtotal above its parts",
        levels({"Asian": 335, "Chinese": 231, "Japanese": 105, "white": 600, "black": 250}, 1),
        Named("'Asian' in column 'level' counts as many as 'Chinese' and 1 more together"),
    ),
    Case(
        "codes that begin one another",
        levels({"A": 600, "A1": 250, "A2": 145, "B": 410}, 6),
        Read([("a", 600, 6), ("b", 250, 6), ("c", 145, 6), ("d", 410, 6)]),
    ),
    Case("subtotals of ages", ages({"0-17": 300, "0-4": 100, "5-17": 200, "18+": 700}), Refused("'0-17' and '0-4'")),
    *(
        Case(
            f"a spreadsheet's date for a range, {date!r}",
            ages({"0-4": 90, date: 210, "10-14": 150, "15+": 700}, 1150),
            Refused(f"{date!r} is a date beside ranges such as '0-4'"),
        )
        for date in ("9-May", "May-09", "09. Mai", "2024-05-09", "2024-05-09 00:00:00", "45421")
    ),
    *(
        Case(
            f"overlapping ranges, {both[0]!r} and {both[1]!r}",
            ages({both[0]: 300, both[1]: 90, "else": 40}),
            Refused(f"'{both[0]}' and '{both[1]}' count some people twice"),
        )
        for both in (
            ("unter 18", "unter 5"),
            ("moins de 18 ans", "moins de 5 ans"),
            ("menores de 18", "menos de 5"),
            ("15 bis unter 25", "18 bis unter 21"),
            ("18 y más", "65 años o más"),
            ("18 ans et plus", "65 ans et plus"),
            ("18 und älter", "65 und mehr"),
            ("<20k", "<10k"),
            ("5-25k", "10k-15k"),
            ("1-3", "2"),
            ("2010-2014", "2012"),
            ("20+", "25"),
            ("10+", "10"),
            ("1 or more persons", "1 person"),
            ("0-17 (children)", "0-4 (small children)"),
            ("18 & over", "65 & over"),
            ("5 000 - 9 999", "5 000 - 6 000"),
            ("Population 18 and over", "Population 65+"),
            ("Y_GE18", "Y_GE65"),
            ("Y15T24", "Y20-24"),
            ("U18", "U5"),
            ("under-18s", "under-5s"),
            ("at least 18", "65+"),
            ("0..17", "0..4"),
            ("18歳以上", "65歳以上"),
            ("18 и старше", "65 и старше"),
            ("2010-14", "2010-11"),
        )
    ),
    *(
        Case(
            f"levels side by side, {', '.join(own)}",
            ages(dict(zip(own, (300, 550, 150), strict=True)), 1000),
            Read([("*", 1000, 5), ("a", 300, 5), ("b", 550, 5), ("c", 150, 5)]),
        )
        for own in (
            ("unter 5", "5 bis unter 18", "18 und mehr"),
            ("moins de 5 ans", "5 à 17 ans", "18 ans et plus"),
            ("1", "2", "3+"),
            ("9", "10", "over 10"),
            ("0-5k", "5-10k", "10k+"),
            ("0", "1-4", "5"),
            ("<10", "10", "11"),
            ("0-4", "5-5", "6-9"),
            ("1 person", "2 persons", "3 or more persons"),
            ("2010-11", "2011-12", "2012-13"),
            ("Y_LT15", "Y15-64", "Y_GE65"),
        )
    ),
    Case(
        "months",
        ages({"Jan-20": 300, "Feb-20": 550, "Mar-20": 150}, 1000),
        Read([("*", 1000, 5), ("a", 300, 5), ("b", 550, 5), ("c", 150, 5)]),
    ),
    Case("a total in one of two columns", TABLE.replace("*,*", "Total,Alle"), Read(BOTH)),
    Case("a total that is asked about in one of two", TABLE.replace("*,*", "T,*"), Refused("does 'T' count everybody")),
    Case(
        "a wide table with Insgesamt",
        WIDE.replace("Total", "Insgesamt").replace("total_", "Insgesamt_"),
        Read(WIDE_ROWS),
        ("--names-to", "sex"),
    ),
    Case(
        "a wide table with T",
        WIDE.replace("Total", "T").replace("total_", "T_"),
        Refused("does 'T' count everybody"),
        ("--names-to", "sex"),
    ),
    Case(
        "a long table's total kept by the table",
        LONG.replace("*", "Insgesamt"),
        Refused("column 'sex' is '*', but the table keeps it"),
    ),
    Case("a long table's T", LONG.replace("sex,*", "total,T"), Refused("does 'T' count everybody")),
]

FOOTERS = [
    Case("a source below", FLAT + '"Source: Census Bureau, 2020",,\n', Read(SEXES)),
    Case("a source on a line of its own", FLAT + "Source: Census\n", Read(SEXES)),
    Case("a source below an empty line", FLAT + "\nSource: Census\n", Read(SEXES)),
    Case("a source that may be a level", FLAT + "Census Bureau,,\n", Refused("row 5, 'Census Bureau'")),
    Case("a source that may be a level, on a line of its own", FLAT + "Census\n", Refused("row 5, 'Census'")),
    Case("a source below two columns of labels", TABLE + "Source: Census,,,\n", Read(BOTH)),
    Case("one without its word", TABLE + "Census,,,\n", Refused("column 'age' is empty in row 9")),
    Case(
        "a source in the column of levels",
        "geolevel,geocode,value,std_error\nCounty,44001,6,1\nCounty,44003,7,1\nX,,,\n",
        Refused("row 4, 'X' in column 'geolevel', has neither a code"),
    ),
    Case(
        "a source in a long table",
        LONG.replace("sex,*", "total,*") + "X,,,\n",
        Refused("column 'sex' is empty in row 5"),
    ),
    Case("a source below a long table", LONG.replace("sex,*", "total,*") + "Source: X,,,\n", Read(SEXES)),
    Case("a source below places", PLACES + "Source: X,,,,\n", Read(COUNTIES, True)),
    Case(
        "a source below a wide table",
        WIDE + "total,1234.5,4,1290,4,2500,5\nX,,,,,,\n",
        Refused("row 5, 'X' in column 'age'"),
        ("--names-to", "sex"),
    ),
    Case(
        "a source below a wide table without a total",
        WIDE + "X,,,,,,\n",
        Named("'X' in column 'age', row 4"),
        ("--names-to", "sex"),
    ),
    Case("a note below a wide table", WIDE + "(1) Revised.,,,,,,\n", Read(WIDE_ROWS), ("--names-to", "sex")),
    Case(
        "a footer without a total",
        FLAT.replace("*,1004,10\n", "") + "Census,,\n",
        Named("'Census' in column 'sex', row 4"),
    ),
    Case("a note that the file is preliminary", FLAT + "# preliminary,,\n", Read(SEXES)),
    Case(
        "labels that begin with #",
        FLAT.replace("f,520,6", "#1,520,").replace("m,", "#2,"),
        Read([SEXES[0], ("f", "", "inf"), SEXES[2]]),
        ("--suppressed", "520"),
    ),
    Case("a comment with a comma", FLAT + "# checked, 2020,\n", Read(SEXES)),
    Case("a header that begins with #", "#" + FLAT, Read(SEXES)),
    Case("a header and labels that begin with #", "#" + FLAT.replace("f,", "#1,"), Read(SEXES)),
    Case("a comment that names columns", "#sex,value,std_error\n" + FLAT, Read(SEXES)),
    Case("a title above", "Population by sex\n" + FLAT, Read(SEXES)),
    Case("a title with empty cells above", "Population by sex,,\n" + FLAT, Read(SEXES)),
    Case("a title with commas above", "Population, by sex, in 2020\n" + FLAT, Read(SEXES)),
    Case("the header again", FLAT + "sex,value,std_error\n", Refused("value 'value' is not a number")),
    Case("a level not published", FLAT.replace("m,490,6", "m,,"), Named("'m' in column 'sex', row 4")),
    Case(
        "a level not published, said",
        FLAT.replace("m,490,6", "m,,"),
        Read([*SEXES[:2], ("m", "", "inf")]),
        ("--suppressed", ""),
    ),
    Case("a small level not published", RACE + "unknown,,\n", Refused("row 6, 'unknown'")),
    Case(
        "a small level not published, said",
        RACE + "unknown,,\n",
        Read([*RACES, ("u", "", "inf")]),
        ("--suppressed", ""),
    ),
    Case("the number of cases below", RACE + "n,2417,0\n", Refused("'n' is counted twice")),
    Case("counts under their own name", LONG.replace("value", "people"), Refused("if it is 'people', say so in")),
    Case("a value without its error", FLAT.replace("490,6", "490,"), Refused("std_error is missing")),
    Case(
        "a value without its error beside suppressed ones",
        FLAT.replace("490,6", "490,"),
        Refused("std_error is missing"),
        ("--suppressed", ""),
    ),
    Case("a percentage below", RACE + "% white,59.8,1\n", Refused("is '% white' a count?")),
    *(
        Case(f"no count, {name!r}", FLAT + f"{name},28,6\n", Refused(f"is {name!r} a count?"))
        for name in ("Change since 2010", "Durchschnitt", "Ø", "Difference f - m", "avg. household", "Maximum", "pct_f")
    ),
    Case("a median below", FLAT + "Median age,38.5,0.2\n", Refused("is 'Median age' a count?")),
    Case("an empty value with its error", FLAT.replace("m,490", "m,"), Named("1 not measured")),
]

OF_TOTALS = [("State", "44", 1000, 5), ("County", "44001", 410, 5), ("County", "44003", 600, 5)]
GEOGRAPHIES = [
    Case(
        "totals of a state and its counties, without a variable",
        csv("geolevel,geocode,value,std_error", OF_TOTALS),
        Read([own[1:] for own in OF_TOTALS], places=True),
    ),
    Case(
        "totals of a state and its counties, and a variable that all sum out",
        csv("sex,geolevel,geocode,value,std_error", [("total", *own) for own in OF_TOTALS]),
        Read([own[1:] for own in OF_TOTALS], places=True),
    ),
    Case("GEO_ID beside plain codes", coded({"44": "0400000US44"}), Read(COUNTIES, places=True)),
    Case(
        "GEO_ID of places",
        coded({"44": "0400000US44", "44001": "1600000US4459000", "44003": "1600000US4480780"}),
        Refused("codes of summary level 160 do not tell"),
    ),
    Case(
        "GEO_ID of parts",
        coded({"44": "0400000US44", "44001": "0400001US44", "44003": "0400043US44"}),
        Refused("places of two kinds"),
    ),
    Case("codes as floats", coded({code: f"{code}.0" for code in NAMES}), Refused("'44.0' is no text but a number")),
    Case("names of places", coded(NAMES), Refused("State 'Rhode Island' and County 'Bristol' would lie side by side")),
    Case("names of places with parents", coded(NAMES, WITH_PARENTS), Read(COUNTIES, places=True)),
    Case(
        "parents as floats",
        WITH_PARENTS.replace(",44,f", ",44.0,f").replace(",44,m", ",44.0,m").replace(",44,*", ",44.0,*"),
        Refused("has the parent '44.0', which has no rows"),
    ),
    Case(
        "parents left out",
        WITH_PARENTS.replace(",44,f", ",,f").replace(",44,m", ",,m").replace(",44,*", ",,*"),
        Refused("neither has a parent"),
    ),
    Case("ISO codes", coded({"44": "US", "44001": "US-RI", "44003": "US-CT"}), Read(COUNTIES, places=True)),
    Case(
        "ISO codes of three letters",
        coded({"44": "USA", "44001": "US-RI", "44003": "US-CT"}),
        Refused("State 'USA' and County 'US-CT' would lie side by side"),
    ),
    Case(
        "the nation as US",
        "geolevel,geocode,sex,value,std_error\nNation,US,*,1000,5\n" + STATE,
        Refused("Nation 'US' and State '44' would lie"),
    ),
    Case(
        "lost zeros of states",
        women({"1": 50, "13": 60}, "State") + "County,1001,f,50,1\nCounty,13001,f,60,1\n",
        Refused("State '13' begins as State '1' does"),
    ),
    Case(
        "codes of counties within their state",
        coded({"44001": "001", "44003": "003"}),
        Refused("State '44' and County '001'"),
    ),
    Case("codes with apostrophes", coded({code: f"'{code}" for code in NAMES}), Read(COUNTIES, places=True)),
    Case("codes with blanks", coded({code: f" {code} " for code in NAMES}), Read(COUNTIES, places=True)),
    Case(
        "codes in scientific notation",
        coded({"44001": "4.4E+04", "44003": "4.4E+04"}),
        Refused("'4.4E+04' is a number that a spreadsheet shortened"),
    ),
    Case(
        "levels and codes swapped",
        PLACES.replace("geolevel,geocode", "geocode,geolevel"),
        Refused("would lie side by side"),
    ),
    Case("a typo in a code", coded({"44003": "45003"}), Refused("State '44' and County '45003' would lie")),
    Case(
        "a typo that stays within the state",
        PLACES + "Tract,4400101,*,600,9\nTract,4402101,*,5,9\n",
        Named("Tract '4402101' in State '44' itself"),
    ),
    Case(
        "the state among its counties",
        women({"44000": 1000, "44001": 410, "44003": 390, "44005": 205}),
        Refused("County '44000' counts as many as all others"),
    ),
    Case(
        "the state among its counties, below a state that was not measured",
        "geolevel,geocode,sex,value,std_error\nState,44,f,,\n"
        + women({"44000": 1000, "44001": 410, "44003": 390, "44005": 205}).split("\n", 1)[1],
        Refused("County '44000' counts as many as all others"),
    ),
    Case(
        "the state among its counties, said to lie in it",
        csv(
            "geolevel,geocode,parent,sex,value,std_error",
            [("State", 44, "", "f", "", ""), *(("County", n, 44, "f", n, 3) for n in (1000, 410, 390, 205))],
        ),
        Named("County '1000' counts as many as all others together: does it hold them?"),
    ),
    Case(
        "small counties, one of which happens to be the sum of others",
        "geolevel,geocode,sex,value,std_error\nState,44,f,,\n"
        + women({"44001": 5, "44003": 2, "44005": 3}).split("\n", 1)[1].replace(",3\n", ",0\n"),
        Named("1 State > 3 County, by codes"),
    ),
    Case(
        "a total among counties",
        women({"Total": 800, "44001": 410, "44003": 390}),
        Refused("County 'Total' counts as many"),
    ),
    Case(
        "a total below counties", women({"44001": 410, "44003": 390}) + "Total,,f,800,3\n", Named("1 Total > 2 County")
    ),
    Case(
        "places beside counties",
        PLACES + "Place,4459000,*,178,6\n",
        Refused("counts 1,000 in table 'total', its 3 children 1,178"),
    ),
    Case(
        "places beside counties, uncertain",
        PLACES.replace("44,*,1000,0", "44,*,1000,40") + "Place,4459000,*,178,9\n",
        Named("Place '4459000' in State '44' itself, beside its County"),
    ),
    Case("a county twice", PLACES + PLACES.split("\n", 4)[4].split("\n")[0] + "\n", Refused("given twice")),
    Case("a row of a county left out", PLACES.replace("County,44003,m,230,18\n", ""), Refused("(sex=m) is missing")),
    Case(
        "a county left out",
        PLACES.split("County,44003")[0],
        Refused("counts 1,000 in table 'total', its 1 children 600"),
    ),
    Case("a capital in a level", PLACES.replace("County,44003", "county,44003"), Read(COUNTIES, places=True)),
    Case(
        "a level left out", PLACES.replace("County,44003,f", ",44003,f"), Refused("column 'geolevel' is empty in row 9")
    ),
    Case("two states without a nation", women({"44": 500, "09": 700}, "State"), Named("2 State side by side")),
    Case(
        "a total beside one state",
        women({"44": 1000, "ALL": 1000}, "State") + "County,44001,f,600,5\nCounty,44003,f,405,5\n",
        Refused("State 'ALL' counts as many as all others"),
    ),
    Case(
        "codes that a spreadsheet shortened alone",
        women({"4.40E+04": 500, "4.41E+04": 600}),
        Refused("'4.40E+04' is a number that a spreadsheet shortened"),
    ),
]

NUMBERS = [
    Case("percent signs", FLAT.replace("520,6", "52%,6"), Refused("value '52%' is not a number")),
    Case("a percentage among counts", RACE.replace("600,6", "59.8,6"), Named("CONTRADICTORY")),
    Case("one county in thousands", PLACES.replace("44003,*,400,0", "44003,*,0.4,0"), Refused("its 2 children 600")),
    Case("a total in thousands", FLAT.replace("1004,10", "1.004,.01"), Named("CONTRADICTORY")),
    Case(
        "the value and the error of one row swapped",
        RACE.replace("250,6", "6,250"),
        Named(
            "table 'race', cell (race=black): 6 is smaller than its standard error, 250, which is far above all others"
        ),
    ),
    Case(
        "errors left out written as 0",
        csv("race,value,std_error", [("*", 1004, 10), ("a", 600, 0), ("b", 250, 0), ("c", 160, 6)]),
        Named("2 values of a table are exact, table 'race', cell (race=a) first, and 1 not"),
    ),
    Case("values and errors swapped", FLAT.replace("value,std_error", "std_error,value"), Named("swapped")),
    Case("errors in percent", FLAT.replace(",6\n", ",1%\n"), Refused("std_error '1%' is not a number")),
    Case("errors for variances", FLAT.replace("std_error", "variance").replace("490", "450"), Named("CONTRADICTORY")),
    Case("a dollar sign", FLAT.replace("1004", "$1004"), Refused("value '$1004' is not a number")),
    Case("about", FLAT.replace("1004", "~1004"), Refused("value '~1004' is not a number")),
    Case("plus or minus", FLAT.replace("1004,10", "1004 ± 10,10"), Refused("what stands behind ± in '1004 ± 10'?")),
    Case("less than", FLAT.replace("490", "<500"), Refused("value '<500' is not a number")),
    Case("a footnote at a number", FLAT.replace("490", "490 b"), Refused("value '490 b' is not a number")),
    Case("revised", FLAT.replace("490", "490r"), Refused("value '490r' is not a number")),
    Case("brackets for a negative number", FLAT.replace("490", "(490)"), Refused("value '(490)' is not a number")),
    Case("a letter for a digit", FLAT.replace("1004", "1OO4"), Refused("value '1OO4' is not a number")),
    Case("digits of another script", FLAT.replace("1004", "１００４"), Refused("is not a number")),
    Case("a mark of the Census Bureau", FLAT.replace("490", "-666666666"), Refused("is a mark of the Census Bureau")),
    Case("thousands in an unquoted number", FLAT.replace("1004", "1,004"), Refused("row 2 has 4 cells, the header 3")),
    Case("thousands in quotes", FLAT.replace("1004", '"1,004"'), Read(SEXES)),
    Case("thousands by a blank", FLAT.replace("1004", "1 004"), Read(SEXES)),
    Case("decimal commas between commas", FLAT.replace("490", '"490,5"'), Refused("write decimals with a point")),
    Case("decimal commas below 1 in quotes", FLAT.replace("490", '"0,490"'), Refused("write decimals with a point")),
    Case(
        "decimal commas with three places in quotes",
        csv("sex,value,std_error", [("*", '"1,234"', 9), ("f", 5200, 9), ("m", '"4,805"', 9)]),
        Refused("'1,234' may mean 1234 or 1.234"),
    ),
    *(
        Case(
            f"points for thousands beside {name}",
            csv("sex,value,std_error", [("*", "1.960", 10), ("f", "1.470", 6), ("m", "490", 6)], delimiter),
            Refused("'1.960' may mean 1960 or 1.960"),
        )
        for name, delimiter in (("tabs", "\t"), ("bars", "|"), ("commas", ","))
    ),
    Case(
        "points for thousands that are not round",
        csv("sex,value,std_error", [("*", "1.964", 10), ("f", "1.472", 6), ("m", "492", 6)]),
        Refused("'1.964' may mean 1964 or 1.964"),
    ),
    Case(
        "three decimals everywhere",
        csv("sex,value,std_error", [("*", "19.640", 10), ("f", "14.700", 6), ("m", "4.922", 6)]),
        Read([("*", 19.64, 10), ("f", 14.7, 6), ("m", 4.922, 6)]),
    ),
    Case("powers of ten", FLAT.replace("490", "4.9e2"), Read(SEXES)),
    Case(
        "values of 0 that were not published beside one that is exact",
        FLAT.replace("1004,10", "1004,0").replace("490,6", "0,6"),
        Read([("*", 1004, 0), SEXES[1], ("m", "", "inf")]),
        ("--suppressed", "0"),
    ),
    *(
        Case(
            f"errors in percent, {name}", FLAT.replace("std_error", name), Refused("is in percent: name it cv_percent")
        )
        for name in (
            "std_error %",
            "SE (%)",
            "std_error_percent",
            "Standard error (in percent)",
            "moe_90 (%)",
            "MOE %",
            "moe_90_percent",
        )
    ),
    Case(
        "errors in percent in a wide table",
        WIDE.replace("_se", "_se (%)"),
        Refused("is in percent: name it cv_percent"),
        ("--names-to", "sex"),
    ),
    *(
        Case(
            f"a margin of how often it misses, moe_{one}",
            FLAT.replace("std_error", f"moe_{one}"),
            Refused(f"moe_{other} if"),
        )
        for one, other in (("05", "95"), ("10", "90"), ("00", "90"), ("02_5", "97.5"))
    ),
    Case("a mark for a number", RACE + "unknown,-9,0\n", Named("cell (race=unknown): -9; is it a mark")),
    Case(
        "negative values made 0",
        csv("area,value,std_error", [(f"area {i}", i * (i % 3 == 0), 9) for i in range(120)]),
        Named("no value is below 0, and 82 are within half a standard error above it"),
    ),
    Case("an infinite value", FLAT.replace("490", "inf"), Refused("value is infinite")),
]

ROWS_AND_COLUMNS = [
    Case("a row twice", FLAT + "f,520,6\n", Refused("given twice, in rows 3 and 5")),
    Case("a cell left out", TABLE.replace("m,old,575,2\n", ""), Refused("cell (sex=m, age=old) is missing")),
    Case("labels of two columns swapped", TABLE.replace("f,young", "young,f"), Refused("is missing")),
    Case("names of two columns swapped", TABLE.replace("sex,age", "age,sex"), Read(BOTH)),
    Case("a typo in a label", TABLE.replace("m,old", "m,odl"), Refused("is missing")),
    Case("a capital in a label", TABLE.replace("m,old", "M,old"), Refused("column 'sex' has both")),
    *(
        Case(f"a label written in two ways, {own!a}", RACE + f"{own},10,6\n", Refused("column 'race' has both"))
        for own in ("whi\u200bte", "w\u00adhite", "WHITE")
    ),
    *(
        Case(
            f"labels that differ in their signs, {one} and {other}",
            RACE.replace("white", one).replace("black", other),
            Refused("column 'race' has both"),
        )
        for one, other in (("non-white", "non\u2013white"), ("O'B", "O\u2019B"), ("1", "1.0"), ("A1", "\uff21\uff11"))
    ),
    Case("leading zeros are of other codes", RACE.replace("white", "01").replace("black", "1"), Read(RACES)),
    Case(
        "accents made in two ways",
        RACE.replace("white", "m\u00e9tis").replace("other", "me\u0301tis"),
        Refused("has both 'm\\xe9tis' (row 3) and 'me\\u0301tis' (row 5)"),
    ),
    Case(
        "a space of another kind",
        TABLE.replace("m,old", "m,very old").replace("f,old", "f,very\u00a0old"),
        Refused("both"),
    ),
    Case("blanks around labels", TABLE.replace("m,old", " m , old"), Read(BOTH)),
    Case("a merged cell", TABLE.replace("m,old", ",old"), Refused("column 'sex' is empty in row 8")),
    Case(
        "a source written in two ways",
        SOURCES.replace("B", "a"),
        Refused("column 'source' has both 'A' and 'a': write one of them"),
    ),
    Case("a source that is a copy", SOURCES, Named("'A' and 'B' have the same values in all 3 cells")),
    Case("two sources", SOURCES.replace("520,6,B", "521,6,B"), Named("repeated measurements; sources 'A', 'B'")),
    Case("a column of an index", "," + FLAT.replace("\n", "\n0,", 3), Refused("has no name")),
    Case(
        "a column of weights",
        FLAT.replace("std_error", "std_error,weight").replace(",6\n", ",6,1.5\n").replace(",10\n", ",10,2.5\n"),
        Refused("is missing"),
    ),
    Case("a column of one year", csv("year,sex,value,std_error", [(2020, *row) for row in SEXES]), Read(SEXES)),
    Case("two years", SEVERAL, Read([("2019", *row) for row in SEXES] + [("2020", *row) for row in SEXES])),
    Case("two columns of one name", FLAT.replace("std_error", "value"), Refused("is given twice")),
    Case("a value called estimate and value", FLAT.replace("std_error", "estimate"), Refused("are both the value")),
    Case(
        "notes",
        FLAT.replace("std_error", "std_error,Notes").replace("6\n", "6,provisional\n").replace("10\n", "10,\n"),
        Read(SEXES),
    ),
    Case("semicolons", FLAT.replace(",", ";"), Read(SEXES)),
    Case("one semicolon for a comma", FLAT.replace("f,520", "f;520"), Refused("std_error is missing")),
    Case("a comma too few", FLAT.replace("f,520,6", "f,5206"), Refused("std_error is missing")),
    Case("an unquoted comma in a label", FLAT.replace("f,", "women, girls,"), Refused("row 3 has 4 cells")),
    Case(
        "estimates for measurements",
        FLAT.replace("std_error", "std_error,lower,upper").replace("\n", ",1,2\n").replace("upper,1,2", "upper"),
        Refused("it holds estimates"),
    ),
    Case(
        "bounds for errors",
        "sex,value,lower,upper\n*,1004,984,1024\nf,520,508,532\nm,490,478,502\n",
        Refused("'lower' and 'upper' do not say how precise values are: give std_error, (upper - lower) / 3.92"),
    ),
    Case(
        "a wide table whose values are called so before their errors are",
        WIDE.replace("_se", "_value_se").replace("f,", "f_value,").replace("m,", "m_value,").replace("l,", "l_value,"),
        Read(WIDE_ROWS),
        ("--names-to", "sex"),
    ),
    Case(
        "a wide table of one row whose total has no error",
        "f,f_se,m,m_se,Total\n520,6,490,6,1004\n",
        Refused("column 'Total' has no other for its precision beside it"),
        ("--names-to", "sex"),
    ),
    Case("an empty file", "", Refused("it is empty")),
    Case("a header alone", "sex,value,std_error\n", Refused("there are no rows")),
]

MISTAKES = [*spellings(), *TOTALS_AND_SUBTOTALS, *FOOTERS, *GEOGRAPHIES, *NUMBERS, *ROWS_AND_COLUMNS]
