"""The three experiments of the paper on integer subspaces, its samplers against exact ones, and release grade.

python -m bench integer_subspace [--quick]
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np

from bench.measuring import best_seconds, is_quick, print_table, timed
from constraint_builders import Schema, gallery
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import has_numba
from noise_mechanisms.chain_diagnostics import effective_sizes
from noise_mechanisms.integer_subspace import (
    GeneralizedGaussian,
    GeneralizedLaplace,
    HeatBathKernel,
    Invariants,
    JumpKernel,
    Lattice,
    projected_noise,
    tail_bound,
)
from noise_mechanisms.integer_subspace.chains import Kernel
from noise_mechanisms.integer_subspace.mechanisms import LatticeMechanism
from noise_mechanisms.unimodular import unimodular_null_basis

EPSILON = 0.25  # fits the paper's printed tables
COUNTY_EPSILON = 0.19  # fits the paper's "within 30" for counties
# Proposal parameters of the paper's kernel, the best of four to six tried on each problem.
BEST_A = {
    ("children", 1): math.exp(-1),
    ("children", 2): math.exp(-0.35),
    ("intersecting", 1): math.exp(-1),
    ("intersecting", 2): math.exp(-0.35),
    ("counties", 1): math.exp(-2),
}


# The noise that the paper prints, county by education: Table 1 (L1) and Table 3 (L2).
PRINTED: dict[int, list[list[int]]] = {
    1: [[-1, -1, 0, 2], [5, 4, -2, -7], [-5, -3, 5, 3], [1, 0, -3, 2]],
    2: [[-11, 1, 10, 0], [-3, -6, 1, 8], [-6, -5, 13, -2], [20, 10, -24, -6]],
}


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    draws: int = 20_000
    projections: int = 1000
    trace: int = 20_000
    timing_moves: int = 300_000


QUICK = Scale(draws=2000, projections=20, trace=1000, timing_moves=20_000)
Rows = Iterator[list[object]]


def main(argv: list[str]) -> None:
    """Print the tables of all three experiments, and of bases and release grade."""
    scale = QUICK if is_quick(argv, "integer_subspace", __doc__, "few draws and runs: seconds") else Scale()
    print(f"chains: {'compiled by numba' if has_numba() else 'numpy (numba, the extra fast, is missing)'}; one thread")
    intersecting(scale)
    children(scale)
    counties(scale)
    title("Bases and release grade")
    print_table(["what", "ms"], further())


def intersecting(scale: Scale) -> None:
    """Experiment 1: three sets over 14 records, two in each of the seven regions (the paper's figure is lost)."""
    title(f"1. Intersecting constraints, 14 records, epsilon {EPSILON}")
    regions = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    subsets = [[2 * i + twin for i, region in enumerate(regions) if k in region for twin in (0, 1)] for k in range(3)]
    venn = Invariants.from_subsets(subsets, records=14)
    for norm in (1, 2):
        print_noise("intersecting", GeneralizedLaplace(venn, EPSILON, norm), scale)


def children(scale: Scale) -> None:
    """Experiment 2: delinquent children by county and education, margins fixed."""
    title(f"2. Delinquent children, both margins fixed, epsilon {EPSILON}")
    invariants = Invariants.from_margins(gallery.delinquent_children().schema, ["county", "education"])
    for norm in (1, 2):
        mechanism = GeneralizedLaplace(invariants, EPSILON, norm)
        noise = print_noise("children", mechanism, scale)
        table = np.array(PRINTED[norm]).ravel()
        size, sizes = float(np.linalg.norm(table, norm, axis=-1)), np.linalg.norm(noise, norm, axis=-1)
        print(
            f"the paper's own {'keeps both margins' if mechanism.lattice.contains(table) else 'BREAKS a margin'}; its "
            f"norm is {size:.1f}, ours {sizes.mean():.1f} on average, {100 * (sizes >= size).mean():.0f} % of them as "
            f"large; bound {tail_bound(mechanism, size):.2f}"
        )


def counties(scale: Scale) -> None:
    """Experiment 3: counties under a fixed state total."""
    title(f"3. Counties under a fixed state total, L1, epsilon {COUNTY_EPSILON}")
    sizes = np.rint(np.exp(np.random.default_rng(102).normal(10.2, 1.2, 102)))
    print(f"102 as in Illinois, of synthetic log-normal sizes, {sizes.min():,.0f} to {sizes.max():,.0f} people")
    mechanism = GeneralizedLaplace(Invariants.from_subsets([range(sizes.size)], sizes.size), COUNTY_EPSILON)
    print_noise("counties", mechanism, scale, sizes)


def print_noise(problem: str, mechanism: GeneralizedLaplace, scale: Scale, sizes: Float | None = None) -> Integers:
    """What a mechanism's noise is like, beside projected noise where there are sizes, and what its samples cost."""
    choice = mechanism.automatic
    choice.sampler.sample(2, 0)
    noise, seconds = timed(lambda: choice.sampler.sample(scale.draws, 1))
    print(f"L{mechanism.norm}: sampler {choice.sampler.name!r}, {choice.reason}")
    rows = [noise_row("generalized Laplace", noise, seconds / scale.draws, sizes)]
    if sizes is not None:
        project = partial(projected_noise, mechanism.invariants, mechanism.epsilon, scale.projections, 1, whole=False)
        other, taken = timed(project)
        rows.append(noise_row("double geometric, projected", other, taken / scale.projections, sizes))
    header = ["noise", "largest mean / its s.e.", "s.d. of cells", "0.5, 99.5 %", "beyond 30", "mean L1", "us a draw"]
    print_table([*header, "correlation of mean, log size"], rows)
    header = ["sampler", "iterations a sample", "us an iteration", "us an independent sample"]
    print_table(header, effort(mechanism, problem, scale, seconds / scale.draws))
    return noise


def noise_row(label: str, noise: Integers, seconds: float, sizes: Float | None) -> list[object]:
    """The noise's mean in standard errors, spread and tails, and whether its mean goes with the counties' sizes."""
    deviation = noise.std(axis=0)
    errors = noise.mean(axis=0) / (deviation / math.sqrt(noise.shape[0]))
    tails = np.percentile(noise, [0.5, 99.5])
    spread, ends = f"{deviation.min():.2f} - {deviation.max():.2f}", f"{tails[0]:.0f}, {tails[1]:.0f}"
    far, mean_norm = f"{100 * (abs(noise) > 30).mean():.2f} %", abs(noise).sum(axis=1).mean()
    along = None if sizes is None else np.corrcoef(noise.mean(axis=0), np.log(sizes))[0, 1]
    return [label, abs(errors).max(), spread, ends, far, mean_norm, 1e6 * seconds, along]


def effort(mechanism: GeneralizedLaplace, problem: str, scale: Scale, exact: float) -> Rows:
    """Time for one effective independent sample, of the exact sampler and of each chain."""
    yield [f"exact: {mechanism.automatic.sampler.name}", 1, "", 1e6 * exact]
    lattice, norm = mechanism.lattice, mechanism.norm
    jumps = JumpKernel(lattice, mechanism.epsilon, norm, BEST_A[problem, norm], has_numba())
    kernels: dict[str, Kernel] = {"paper's kernel": jumps}
    if norm == 1:
        kernels["heat bath"] = HeatBathKernel(lattice, mechanism.epsilon, has_numba())
    for name, kernel in kernels.items():
        iterations, each = correlation(kernel, scale), iteration_seconds(kernel, scale)
        yield [name, iterations, 1e6 * each, 1e6 * each * iterations]


def correlation(kernel: Kernel, scale: Scale) -> float:
    """Iterations for one effective independent sample, the worst of the norm and two cells, from 16 chains."""
    records = kernel.lattice.records
    thinning = (4 if isinstance(kernel, HeatBathKernel) else 16) * (16 if records > 50 else 1)
    rng, states = np.random.default_rng(3), np.zeros((16, records), dtype=np.int64)
    kernel.advance(states, kernel.burn_in, rng)
    trace = kernel.trace(states, scale.trace // 4, thinning, rng)
    statistics = (np.linalg.norm(trace, kernel.norm, axis=-1), trace[:, :, 0], trace[:, :, records // 3])
    traces = np.stack(statistics, axis=-1).astype(float)
    return float((traces[..., 0].size / effective_sizes(traces)).max()) * thinning


def iteration_seconds(kernel: Kernel, scale: Scale) -> float:
    """CPU time of one iteration of a single chain, the shortest of five runs."""
    states = np.zeros((1, kernel.lattice.records), dtype=np.int64)
    moves = scale.timing_moves if kernel.compiled else scale.timing_moves // 100
    kernel.advance(states, 10, np.random.default_rng(0))
    return min(timed(partial(kernel.advance, states, moves, np.random.default_rng(i)))[1] for i in range(5)) / moves


def further() -> Rows:
    """Bases in closed form and by elimination, and draws of release grade."""
    large = margins(40, 50)
    closed, eliminated = best_seconds(lambda: Lattice(large).basis), lambda: unimodular_null_basis(large.matrix)
    yield ["basis of 40 x 50 margins, closed form", 1e3 * closed]
    yield ["the same by elimination", 1e3 * best_seconds(eliminated)]
    counties = Invariants.from_subsets([range(102)], 102)
    mechanisms: dict[str, LatticeMechanism] = {"102 counties": GeneralizedLaplace(counties, COUNTY_EPSILON)}
    mechanisms |= {f"4 x 4, L{norm}": GeneralizedLaplace(margins(4, 4), EPSILON, norm) for norm in (1, 2)}
    mechanisms["9 x 24"] = GeneralizedGaussian(margins(9, 24), 4.0)
    for name, mechanism in mechanisms.items() if find_spec("opendp") else ():
        sampler = mechanism.automatic.sampler
        sampler.release_sample()
        each = sum(timed(sampler.release_sample)[1] for _ in range(20)) / 20
        yield [f"release grade, {name}, by {sampler.name}", 1e3 * each]


def margins(rows: int, columns: int) -> Invariants:
    """Both margins of a two-way table."""
    return Invariants.from_margins(Schema({"row": rows, "column": columns}), ["row", "column"])


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'=' * len(text)}")
