"""Real censuses that were rounded or perturbed: what they take, whether they fit, and how often intervals cover.

    python -m bench rounded_censuses            all
    python -m bench rounded_censuses --quick    New Zealand 2013, and few draws

1. Reading, estimate, proof and fit of New Zealand 2013 (electorates by age, sex and years at the residence) and 2018
   (29,889 small areas by motor vehicles, in areas that cross), both rounded randomly to base 3, and of Australia 2021
   (areas by age and sex), whose figures have cell keys; CPU times.
2. The variance of the noise by the tables' own disagreement.
3. Coverage of 95 % intervals on the same designs, tables published anew of counts drawn from the estimates: all cells,
   and those of counts from 0 to 5, by the law's variance and by what figures suggest; Australia's by an invented key.
4. Coverage of whole numbers, of one age of an electorate at a time: by the posterior, at least 95 % of it, and of the
   possible counts, under random and conventional rounding.

Where the files are at hand.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import scipy

from bench.measuring import is_quick, print_table, timed
from blue_solvers import Estimate, counts_posterior, estimate
from blue_solvers.nonnegative import nnls
from blue_solvers.rounded import estimate_rounded, estimated_noise, possible_counts
from constraint_builders import Problem, Schema, read_tables
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, Gaussian, Law, RandomRounding, Rounding

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "rounded"
SMALL = 5  # counts of which coverage is looked at apart
SEED, DRAWS, MANY = 2026, 20, 100_000  # figures, of which there are 3 draws
KEYED, FURTHEST = 4.0, 5  # variance of an invented cell key, and how far it changes
LAW = RandomRounding(3)
Measured = tuple[Problem, np.ndarray]


def main(argv: list[str]) -> None:
    """Print the four."""
    quick = is_quick(argv, "rounded_censuses", __doc__, "New Zealand 2013 alone, 2 draws")
    if not DATA.exists():
        print_table(["what"], [[f"{DATA} is not at hand"]])
        return
    print_table(["census", "figures", "CPU s", "chi-square", "degrees", "proved", "variance"], _fits(quick))
    print_table(["census", "table", "cells", "by the law", "refitted", "to 5", "refitted", "these"], _coverages(quick))
    header = ["law", "counts", "posterior", "to 5", "width", "possible", "width"]
    print_table(header, _whole_numbers(3 if quick else 60))


def censuses(quick: bool, key: CellKey | None = None) -> dict[str, Callable[[], Measured]]:
    """Problems with their figures, by name; Australia's with a cell key, or the variance that its tables tell."""
    found: dict[str, Callable[[], Measured]] = {"New Zealand 2013": new_zealand_2013}
    if not quick:
        found["New Zealand 2018"] = new_zealand_2018
        levels = ("SA4", "SA3", "SA2")
        found |= {f"Australia 2021, {level}": lambda level=level: australia(level, key) for level in levels}
    return found


def new_zealand_2013() -> Measured:
    """Electorates by age, sex and years at the residence, of those who said them."""
    frame = pl.read_csv(DATA / "nz2013_residence.csv.gz").filter(~pl.col("el").str.contains("Total"))
    frame = frame.filter(~pl.col("yr").is_in(["T", "nei"]))
    frame = frame.with_columns(sex=pl.col("sex").replace({"T": "*"}), yr=pl.col("yr").replace({"stated": "*"}))
    return read_tables(frame, noise=LAW, total=["*"])


def new_zealand_2018() -> Measured:
    """Households by motor vehicles in small areas, and in areas of these that cross."""
    said = {"names_to": "vehicles", "total": ["total_hh"], "columns": {"total_stated": "note"}}
    return read_tables(DATA / "nz2018_vehicles.csv.gz", areas=DATA / "nz2018_areas.csv.gz", noise=LAW, **said)


def australia(level: str, law: Law | None = None) -> Measured:
    """Areas by age and sex, of a law: without one with the variance that its tables tell."""
    parts = []
    for name in ("persons", "sex", "age_sex"):
        frame = pl.read_csv(DATA / f"au2021_{level}_{name}.csv.gz")
        absent = [pl.lit("*").alias(own) for own in ("Age", "Sex") if own not in frame.columns]
        parts.append(frame.with_columns(absent).select(f"{level}_NAME21", "Age", "Sex", value="persons"))
    return read_tables(pl.concat(parts), noise=law or Gaussian(KEYED), total=["*"])


def cell_key() -> CellKey:
    """An invented key of Australia's kind: unbiased, as even as its variance lets it be, and no 1 or 2 is published."""
    rows, figures = [{0: 1.0}, {-1: 2 / 3, 2: 1 / 3}], np.array([0, *range(3, 20)])
    for count in range(2, FURTHEST + 4):
        changes = figures[abs(figures - count) <= FURTHEST] - count
        rows.append(dict(zip(changes.tolist(), _even(changes).tolist(), strict=True)))
    return CellKey(rows)


def _even(changes: np.ndarray) -> np.ndarray:
    """Probabilities of changes, of mean 0 and variance `KEYED`, that have the largest entropy."""

    def weights(by: np.ndarray) -> np.ndarray:
        return scipy.special.softmax(by[0] * changes - by[1] * changes**2)

    def off(by: np.ndarray) -> list[float]:
        return [weights(by) @ changes, weights(by) @ changes**2 - KEYED]

    return weights(scipy.optimize.root(off, [0.0, 1 / (2 * KEYED)]).x)


def _fits(quick: bool) -> Iterator[list[object]]:
    for name, read in censuses(quick).items():
        (problem, y), reading = timed(read)
        est, solving = timed(lambda problem=problem, y=y: estimate(problem, y))
        fit, testing = timed(lambda est=est: est.goodness_of_fit(draws=0))
        noise = estimated_noise(problem, y, "all", rng=0)
        declared = 4.0 if problem.noise.law == "gaussian" else LAW.variance
        seconds = f"{reading:.1f} + {solving:.1f} + {testing:.1f}"
        found = f"{noise.factors[0] * declared:.3f} +- {noise.std_errors[0] * declared:.3f} ({declared:.3f})"
        tested = fit.statistic, fit.degrees_of_freedom, est.certificate().bound
        yield [name, problem.observed.size, seconds, *tested, found]


def _coverages(quick: bool) -> Iterator[list[object]]:
    rng = np.random.default_rng(SEED)
    for name, read in censuses(quick, cell_key()).items():
        problem, y = read()
        counts = nnls(problem.replace(noise=problem.noise.of_law("gaussian")), y).detail.ravel()
        draws = 2 if quick else DRAWS if problem.observed.size < MANY else 3
        inside, few = np.zeros((2, draws, problem.desired.size)), np.zeros((draws, problem.desired.size), dtype=bool)
        for k in range(draws):
            truth = problem.marginal_matrix() @ rng.poisson(counts)[: problem.domain.size].astype(float)
            wanted = problem.tabulate(truth[:, None])[:, 0]
            figures = add_noise(problem, truth, rng)
            few[k] = wanted <= SMALL
            for own, rounds in zip(inside, (0, 1), strict=True):
                own[k] = _covered(estimate_rounded(problem, figures, rounds=rounds, certify=False), wanted)
        for number, table in enumerate(problem.desired.names):
            own = problem.desired.block(number)
            shares = [_share(found[:, own]) for found in inside]
            shares += [_share(found[:, own][few[:, own]]) for found in inside]
            yield [name, table, own.stop - own.start, *shares, int(few[:, own].sum())]


def _share(covered: np.ndarray) -> str:
    known = covered[np.isfinite(covered)]
    return f"{known.mean():.4f}" if known.size else ""


def _whole_numbers(draws: int) -> Iterator[list[object]]:
    problem, y = new_zealand_2013()
    counts = nnls(problem.replace(noise=problem.noise.of_law("gaussian")), y).detail
    shape = counts.shape[2:]
    for law in (LAW, RandomRounding(5), Rounding(5), Rounding(10)):
        rng, found = np.random.default_rng(SEED), []
        tables = dict.fromkeys(("total", "sex", "yr", "detailed"), law)
        one = Problem(Schema(dict(zip(problem.schema.names[2:], shape, strict=True))), tables)
        for _ in range(draws):
            mean = counts[rng.integers(counts.shape[0]), rng.integers(counts.shape[1])]
            truth = one.marginal_matrix() @ rng.poisson(mean.ravel()).astype(float)
            figures = add_noise(one, truth, rng)
            posterior = counts_posterior(one, figures, effective=100, rng=rng).intervals(0.95)
            ends = (posterior, possible_counts(one, figures))
            inside, widths = zip(*(((low <= truth) & (truth <= high), high - low) for low, high in ends), strict=True)
            found.append([truth, *inside, *widths])
        truth, by_posterior, by_limits, width, wide = np.concatenate(found, axis=1)
        shares = [f"{held.mean():.4f}" for held in (by_posterior, by_posterior[truth <= SMALL], by_limits)]
        yield [law, truth.size, *shares[:2], width.mean(), shares[2], wide.mean()]


def _covered(est: Estimate, truth: np.ndarray) -> np.ndarray:
    low, high = est.interval(0.95)
    return np.where(np.isfinite(est.values), (truth >= low) & (truth <= high), np.nan)
