"""Files to try the command on.

`BERKELEY` is one noisy measurement of `gallery.berkeley`: whole numbers with discrete Gaussian noise of variance 9, the
total known exactly, and three small cells of the detailed table suppressed. `BERKELEY_SCHEMA` describes it.

`AUCKLAND_2013` is a real one: residents of the electorate Auckland Central by age and sex, as seven tables of New
Zealand's census of 2013 published them, each figure rounded randomly to base 3 by itself. Stats NZ, CC BY 4.0, from the
package nzcensus2013 by P. Ellis; `write_auckland` makes it from the table that this has.

`FREE_ENERGIES` are 51 relative binding free energies between 34 ligands of p38 with their standard deviations, in
kcal/mol, computed by the Open Free Energy consortium (IndustryBenchmarks2024, MIT); `write_free_energies` takes them
from its file of all networks.

`POWER_HOUR` is one hour of the electricity balance of the United States, 2023-06-10 00:00 UTC: 805 series of form
EIA-930 (U.S. Energy Information Administration, public domain), ``E_REGION_KIND``, of demand D, generation NG, by fuel
too, interchange TI and flows ID between two regions, in MW, with weights and the consistent values that gridemissions
(J. de Chalendar, MIT) published; `write_power_hour` takes it from its files of a day.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from constraint_builders import Problem, gallery
from constraint_builders.true_tables import known_truth
from noise_mechanisms import add_noise

BERKELEY = Path(__file__).with_name("berkeley.csv")
BERKELEY_SCHEMA = Path(__file__).with_name("berkeley.toml")
AUCKLAND_2013 = Path(__file__).with_name("auckland_2013.csv")
FREE_ENERGIES = Path(__file__).with_name("free_energies_p38.csv")
POWER_HOUR = Path(__file__).with_name("power_hour_2023.csv")

ELECTORATE = "Auckland Central"
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
