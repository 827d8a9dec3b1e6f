"""Test problems, shared by the documentation, the tests and the benchmarks.

Each function returns a `Problem`; its `truth` is set where true counts exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.problem import Problem

PL94_SHAPE = {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63}
PL94_RECODES = {"hhgq": {"hhinstlevels": ["household"] + ["institutional"] * 4 + ["noninstitutional"] * 3}}

# Variances of the query groups at one geounit of each geolevel in the 2020 production release (persons, United States),
# 1 / (rho * geolevel share * query share); certificate RUN1A US-Persons. In this order: total, cenrace, the groups of
# few cells, the two crosses of cenrace with a variable of two levels, the cross with both, detailed.
PL94_VARIANCES = {
    "State": (1.2091923983582196, 760.3804865009271, 760.3804865009271,
              380.19024325046354, 134.1847917354577, 19.83601269132853),
    "County": (4.701627401105837, 1469.7287255856845, 1469.7287255856845,
               524.9031162806016, 145.51769560254303, 19.49242341625576),
    "Block": (7963.257458627891, 4424.031921459939, 7963.257458627891,
              1896.0136806256883, 560.792778776612, 10.092848490022675),
}  # fmt: skip
DHC_RHO = 0.0999


def toy() -> Problem:
    """The running example of SEA BLUE (Example 7): one variable of three levels and its total, unit variances.

    Returns
    -------
    Problem
    """
    counts = np.array([5.0, 10.0, 15.0])
    return Problem(Schema({"B": 3}), {"B": 1.0, "total": 1.0}, truth={"B": counts, "total": counts.sum()})


def cube(k: int, levels: int, variance: float = 2.0) -> Problem:
    """`k` variables of equally many levels with all 2^k margins observed: the paper's simulated "k x k" tables.

    Parameters
    ----------
    k, levels : int
        Number of variables, and of levels of each.
    variance : float
        Variance of the noise in every cell; the paper uses 2.

    Returns
    -------
    Problem
    """
    return _all_up_to(Schema({f"v{i}": levels for i in range(k)}), k, variance)


def wide(variables: int = 50, levels: int = 10, max_way: int = 3, variance: float = 2.0) -> Problem:
    """Many variables, with all tables up to `max_way` ways observed; the joint table is out of reach.

    Parameters
    ----------
    variables, levels : int
    max_way : int
        Variables of the largest tables.
    variance : float
        Of every cell.

    Returns
    -------
    Problem
    """
    return _all_up_to(Schema({f"v{i}": levels for i in range(variables)}), max_way, variance)


def adult(max_way: int = 3, variance: float = 2.0) -> Problem:
    """The 14 variables of the Adult data set, with all tables up to `max_way` ways observed.

    Parameters
    ----------
    max_way : int
        Variables of the largest tables.
    variance : float
        Of every cell.

    Returns
    -------
    Problem
    """
    sizes = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
    names = (
        "age", "workclass", "fnlwgt", "education", "marital", "occupation", "relationship",
        "race", "sex", "capital_gain", "capital_loss", "hours", "country", "income",
    )  # fmt: skip
    return _all_up_to(Schema(dict(zip(names, sizes, strict=True))), max_way, variance)


def _all_up_to(schema: Schema, most: int, variance: float) -> Problem:
    ways = range(min(most, len(schema.names)) + 1)
    return Problem(schema, {" * ".join(c) or "total": variance for k in ways for c in combinations(schema.names, k)})


def pl94() -> Problem:
    """Redistricting data of one county: the query groups and variances of 2020 production, all 16 marginals desired.

    Returns
    -------
    Problem
    """
    schema = Schema(PL94_SHAPE, PL94_RECODES)
    return Problem(schema, _pl94_queries("County"), desired=_all_marginals(schema.names))


def pl94_block() -> Problem:
    """The "PL94 Block" of SEA BLUE: redistricting data of one block, all 16 marginals desired.

    The variances are those of 2020 production, which reproduce the paper's widths. As in the paper the recoded query
    group, of institutions, is left out.

    Returns
    -------
    Problem
    """
    schema = Schema(PL94_SHAPE)
    return Problem(schema, _without_recodes(_pl94_queries("Block")), desired=_all_marginals(schema.names))


def pl94_counties(counties: int = 55, *, recoded: bool = True) -> Problem:
    """Redistricting data of a state and its counties, the county being a variable; all marginals desired.

    The state's query groups have the variances of 2020 production at the state level, those crossed with the county
    the variances at the county level.

    Parameters
    ----------
    counties : int
    recoded : bool
        False leaves out the recoded query group: with 55 counties that is the "PL94 Multi" of SEA BLUE.

    Returns
    -------
    Problem
    """
    schema = Schema({"county": counties, **PL94_SHAPE}, PL94_RECODES if recoded else None)
    detailed = " * ".join(schema.names[1:])
    of_state, of_county = (_pl94_queries(geolevel) for geolevel in ("State", "County"))
    if not recoded:
        of_state, of_county = _without_recodes(of_state), _without_recodes(of_county)
    observed = {name.replace("detailed", detailed): value for name, value in of_state.items()}
    for name, value in of_county.items():
        crossed = {"total": "county", "detailed": "detailed"}.get(name, f"county * {name}")
        observed[crossed] = value
    return Problem(schema, observed, desired=_all_marginals(schema.names))


def _pl94_queries(geolevel: str) -> dict[str, float]:
    total, cenrace, small, by_race, three_way, detailed = PL94_VARIANCES[geolevel]
    return {
        "total": total,
        "cenrace": cenrace,
        "hispanic": small,
        "votingage": small,
        "hhinstlevels": small,
        "hhgq": small,
        "hispanic * cenrace": by_race,
        "votingage * cenrace": by_race,
        "votingage * hispanic": small,
        "votingage * hispanic * cenrace": three_way,
        "detailed": detailed,
    }


def _without_recodes(queries: Mapping[str, float]) -> dict[str, float]:
    recodes = {name for of_variable in PL94_RECODES.values() for name in of_variable}
    return {name: variance for name, variance in queries.items() if not recodes & set(name.split(" * "))}


def dhc() -> Problem:
    """Demographic and Housing Characteristics of one state, the "DHC State" of SEA BLUE; all 32 marginals desired.

    Each query of the 2020 state release has rho 0.0999, so variance 1 / 0.0999 a cell. As in the paper binned variables
    are summed out. Observed are the full cross; the sums over 40 age groups, and over these and 25 groups of relgq; the
    cross of the two variables of size 2; and sex by itself, the best combination of the sums over the 3, 4 and 38 bins
    of three tables. Section 6.1 of the paper does not name the second and third, without which its widths do not come
    out.

    Returns
    -------
    Problem
    """
    schema = Schema({"relgq": 42, "sex": 2, "age": 116, "hispanic": 2, "cenrace": 63})
    variance = 1 / DHC_RHO
    observed = {
        "sex": variance / sum(1 / bins for bins in (3, 4, 38)),
        "sex * hispanic": variance,
        "sex * hispanic * cenrace": 40 * 25 * variance,
        "relgq * sex * hispanic * cenrace": 40 * variance,
        "detailed": variance,
    }
    return Problem(schema, observed, desired=_all_marginals(schema.names))


def _all_marginals(names: tuple[str, ...]) -> list[str]:
    marginals = [" * ".join(c) or "total" for k in range(len(names)) for c in combinations(names, k)]
    return [*marginals, "detailed"]


def berkeley(variance: float = 9.0) -> Problem:
    """Graduate admissions at Berkeley in 1973: sex x admitted x department, published counts, all margins.

    Parameters
    ----------
    variance : float
        Of every cell, in squared applicants.

    Returns
    -------
    Problem
        With its `truth`.
    """
    schema = Schema({"admitted": ["admitted", "rejected"], "sex": ["male", "female"], "department": list("ABCDEF")})
    counts = np.array(
        [
            [[512, 353, 120, 138, 53, 22], [89, 17, 202, 131, 94, 24]],
            [[313, 207, 205, 279, 138, 351], [19, 8, 391, 244, 299, 317]],
        ]
    )
    return _with_margins(schema, counts, dict.fromkeys(_all_marginals(schema.names), variance))


def delinquent_children(variance: float = 4.0) -> Problem:
    """Delinquent children by county and education of the household's head, with both margins and the total.

    The example of Dharangutte, Gao, Gong and Yu, "Integer subspace differential privacy" (AAAI 2023), after Table 4 of
    the Federal Committee on Statistical Methodology's Working Paper 22 (2005). Its printed total for the county Gamma
    is 35; the cells sum to 25, which is what the truth here has.

    Parameters
    ----------
    variance : float
        Of every cell, in squared children.

    Returns
    -------
    Problem
        With its `truth`.
    """
    schema = Schema(
        {"county": ["Alpha", "Beta", "Gamma", "Delta"], "education": ["low", "medium", "high", "very high"]}
    )
    counts = np.array([[15, 1, 3, 1], [20, 10, 10, 15], [3, 10, 10, 2], [12, 14, 7, 2]])
    return _with_margins(schema, counts, dict.fromkeys(_all_marginals(schema.names), variance))


def _with_margins(schema: Schema, detailed: NDArray, observed: Mapping[str, float]) -> Problem:
    """A problem whose truth is the margins of known detailed counts, of the schema's shape."""
    return Problem(schema, observed, truth=Problem(schema, observed).marginal_matrix() @ detailed.ravel())
