"""Files to try the command on.

`BERKELEY` is one noisy measurement of `gallery.berkeley`: whole numbers with discrete Gaussian noise of variance 9, the
total known exactly, and three small cells of the detailed table suppressed. `BERKELEY_SCHEMA` describes it.

`AUCKLAND_2013` is a real one: residents of the electorate Auckland Central by age and sex, as seven tables of New
Zealand's census of 2013 published them, each figure rounded randomly to base 3 by itself. Stats NZ, CC BY 4.0, from the
package nzcensus2013 by P. Ellis; `write_auckland` makes it from the table that this has.

`SYDNEY_2021` is another: residents of the areas (SA4) of Sydney by age and sex, Australia's census of 2021, each figure
perturbed by itself with noise that the bureau does not describe. Australian Bureau of Statistics, CC BY 4.0, from the
package Census2021.DataPack; `write_sydney` makes it from the tables that this has.

`OTAGO_2018` is a third, of areas that cross: households by motor vehicles in the small areas (SA2) of the region of
Otago and of its districts, one of which lies in two regions; New Zealand's census of 2018, each figure rounded randomly
to base 3 by itself. `OTAGO_AREAS` says in which district and region every small area lies. Stats NZ, CC BY 4.0, from
db-censusnz; `write_otago` makes both from the tables that this has.

`FREE_ENERGIES` are 51 relative binding free energies between 34 ligands of p38 with their standard deviations, in
kcal/mol, computed by the Open Free Energy consortium (IndustryBenchmarks2024, MIT); `write_free_energies` takes them
from its file of all networks.

`POWER_HOUR` is one hour of the electricity balance of the United States, 2023-06-10 00:00 UTC: 805 series of form
EIA-930 (U.S. Energy Information Administration, public domain), ``E_REGION_KIND``, of demand D, generation NG, by fuel
too, interchange TI and flows ID between two regions, in MW, with weights and the consistent values that gridemissions
(J. de Chalendar, MIT) published; `write_power_hour` takes it from its files of a day.

`EMPLOYMENT` are employees of the United States in thousands, not seasonally adjusted, in 15 industries that add up to
all but farms, every month from 1990 to September 2019: Current Employment Statistics of the Bureau of Labor Statistics
(public domain), as FRED had them on 2019-10-04.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from constraint_builders import Problem, gallery
from constraint_builders.true_tables import known_truth
from noise_mechanisms import add_noise

BERKELEY = Path(__file__).with_name("berkeley.csv")
BERKELEY_SCHEMA = Path(__file__).with_name("berkeley.toml")
AUCKLAND_2013 = Path(__file__).with_name("auckland_2013.csv")
SYDNEY_2021 = Path(__file__).with_name("sydney_2021.csv")
OTAGO_2018 = Path(__file__).with_name("otago_2018.csv")
OTAGO_AREAS = Path(__file__).with_name("otago_areas.csv")
FREE_ENERGIES = Path(__file__).with_name("free_energies_p38.csv")
POWER_HOUR = Path(__file__).with_name("power_hour_2023.csv")
EMPLOYMENT = Path(__file__).with_name("employment_1990_2019.csv")

ELECTORATE = "Auckland Central"
CITY = "Sydney - "
REGION, ELSEWHERE = "14", "999"
VEHICLES = {
    "0_no": "none", "1_one": "one", "2_two": "two", "3_three": "three", "4_four": "four", "5_five": "five or more",
    "9_not": "not stated", "total_hh": "total",
}  # fmt: skip
SEED = 1973
SUPPRESSED_BELOW = 20


def berkeley() -> Problem:
    """The problem that `BERKELEY` holds a measurement of, with its truth."""
    problem = gallery.berkeley()
    truth = known_truth(problem)
    observed = {str(name): np.full(problem.observed.shape(name), 9.0) for name in problem.observed.names}
    observed["total"] = np.array(0.0)
    observed["detailed"][problem.observed.tables(truth)["detailed"] < SUPPRESSED_BELOW] = np.inf
    return Problem(problem.domain.schema, observed, noise="discrete_gaussian", truth=truth)


def write_berkeley(folder: str | os.PathLike[str]) -> None:
    """Make both files anew, in `folder`."""
    from constraint_builders.files import measurements_frame, write_frame, write_schema_file

    problem = berkeley()
    y = add_noise(problem, known_truth(problem), SEED)
    write_frame(measurements_frame(problem, y), Path(folder) / BERKELEY.name)
    write_schema_file(Path(folder) / BERKELEY_SCHEMA.name, problem.domain.schema, noise=str(problem.noise.law))


def write_auckland(published: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Make `AUCKLAND_2013` anew, in `folder`.

    Parameters
    ----------
    published : path
        A CSV file of all electorates, with columns ``table``, ``el``, ``age``, ``sex`` (``T`` for both) and ``value``.
    folder : path
    """
    import polars as pl

    frame = (
        pl.read_csv(Path(published))
        .filter(pl.col("el") == ELECTORATE)
        .select(source="table", age="age", sex="sex", value="value")
    )
    frame = frame.with_columns(
        age=pl.col("age").str.replace(" Years", "").str.replace("–", "-").str.replace(" And Over", "+"),
        sex=pl.col("sex").replace({"T": "*", "Female": "female", "Male": "male"}),
    )
    frame.sort("source", "age", "sex").write_csv(Path(folder) / AUCKLAND_2013.name)


def write_sydney(published: Sequence[str | os.PathLike[str]], folder: str | os.PathLike[str]) -> None:
    """Make `SYDNEY_2021` anew, in `folder`.

    Parameters
    ----------
    published : sequence of paths
        CSV files of all areas, with columns ``SA4_NAME21``, ``persons`` and, where they are told apart, ``Age`` and
        ``Sex``.
    folder : path
    """
    import polars as pl

    area, written = pl.col("SA4_NAME21"), []
    for path in published:
        frame = pl.read_csv(Path(path)).filter(area.str.starts_with(CITY))
        absent = [pl.lit("*").alias(own) for own in ("Age", "Sex") if own not in frame.columns]
        frame = frame.with_columns(area.str.strip_prefix(CITY), *absent)
        written.append(frame.select(area="SA4_NAME21", age="Age", sex="Sex", value="persons"))
    frame = pl.concat(written).with_columns(sex=pl.col("sex").replace({"F": "female", "M": "male"}))
    frame.sort("area", "sex", maintain_order=True).write_csv(Path(folder) / SYDNEY_2021.name)


def write_otago(
    vehicles: str | os.PathLike[str], areas: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> None:
    """Make `OTAGO_2018` and `OTAGO_AREAS` anew, in `folder`.

    Parameters
    ----------
    vehicles : path
        A CSV file of all areas, with columns ``level``, ``code`` and one for each category; empty: not published.
    areas : path
        A CSV file with a row for each of the smallest areas, and the codes of those that hold it.
    folder : path
    """
    import polars as pl

    names = {"SA2_2018_CODE": "SA2", "TA_2018_CODE": "district", "RC_2018_CODE": "region"}
    held = pl.read_csv(Path(areas), infer_schema_length=0).select(*names).rename(names).unique().sort("SA2")
    here = pl.col("region") == REGION
    districts = held.filter(here, pl.col("district") != ELSEWHERE)["district"].unique()
    held = held.filter(here | pl.col("district").is_in(districts.implode())).with_columns(
        pl.when(pl.col("district") == ELSEWHERE).then(pl.lit("-")).otherwise("district").alias("district"),
        pl.when(here).then("region").otherwise(pl.lit("-")).alias("region"),
    )
    level = pl.col("level").replace({"TA": "district", "RC": "region"})
    frame = pl.read_csv(Path(vehicles), schema_overrides={"code": pl.String}).with_columns(level)
    known = [held.select(level=pl.lit(own), code=own).unique() for own in names.values()]
    frame = frame.join(pl.concat(known), on=["level", "code"], how="semi")
    figures = [pl.col(own).cast(pl.Int64).alias(called) for own, called in VEHICLES.items()]
    frame.sort("level", "code").select("level", "code", *figures).write_csv(Path(folder) / OTAGO_2018.name)
    held.write_csv(Path(folder) / OTAGO_AREAS.name)


def write_free_energies(networks: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Make `FREE_ENERGIES` anew, in `folder`, from a CSV file of all networks."""
    import polars as pl

    frame = pl.read_csv(Path(networks)).filter(pl.col("system group") == "jacs_set", pl.col("system name") == "p38")
    columns = {"ligand_A": "from", "ligand_B": "to", "DDG_bind (kcal/mol)": "value", "stdev DDG_bind (kcal/mol)": "sd"}
    frame.select(list(columns)).rename(columns).write_csv(Path(folder) / FREE_ENERGIES.name)


def write_power_hour(day: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Make `POWER_HOUR` anew, in `folder`, from the first hour of three CSV files of a day in another."""
    import polars as pl

    columns = []
    for name, column in (("rolling", "value"), ("weights", "weight"), ("opt", "published")):
        hour = pl.read_csv(Path(day) / f"eia930_{name}.csv.gz").drop("period").head(1)
        columns.append(hour.unpivot(variable_name="series", value_name=column))
    frame = columns[0].join(columns[1], on="series").join(columns[2], on="series")
    frame.sort("series").write_csv(Path(folder) / POWER_HOUR.name)
