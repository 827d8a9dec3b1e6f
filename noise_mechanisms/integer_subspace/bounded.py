"""Tables that must also be non-negative, or 0 and 1, and the exponential mechanism among them.

What the paper leaves open. The set of allowed tables now depends on the invariants' values, so that noise cannot be
additive and no mechanism is unbiased: near the boundary it can move in one direction only. `BoundedMechanism.bias`
shows by how much. Under nested invariants draws are exact for any number of tables; under others the tables are
listed, and where they are too many a chain is run whose error is bounded by coupling, for simulation.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number, random_generator, share, whole_number
from noise_mechanisms.integer_subspace.bounded_blocks import BoundedBlock
from noise_mechanisms.integer_subspace.chains import CouplingWarning, meeting_times
from noise_mechanisms.integer_subspace.exact_decisions import bernoulli_exp
from noise_mechanisms.integer_subspace.guarantee import Guarantee
from noise_mechanisms.integer_subspace.heat_bath import ENDLESS, HeatBathKernel, redraw_in_numpy
from noise_mechanisms.integer_subspace.invariants import Invariants, two_way_shape
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members
from noise_mechanisms.laws.base_law import Seed

_MOST_RECORDS = 500
_DEAD_ENDS = 20  # for every table that may be listed
_INSTEAD = (
    "fix more, or give up the bounds and use GeneralizedLaplace or GeneralizedGaussian, which need no list; "
    "BoundedMechanism.sample_by_chain simulates without one"
)


class BoundedMechanism:
    """The exponential mechanism among the non-negative (or binary) tables equivalent to the confidential one.

    A table y has probability proportional to exp(-epsilon |y - x|_1 / 2), x being the confidential one. The half pays
    for the normaliser, which depends on x: the mechanism is epsilon-private per unit of L1 distance.

    Parameters
    ----------
    invariants : Invariants
        What must not change.
    epsilon : float
        Loss per unit of L1 distance.
    binary : bool
        Tables of 0 and 1 only.
    limit : int
        The most tables to list.

    Raises
    ------
    ValueError
        If epsilon is not positive and finite.
    """

    def __init__(self, invariants: Invariants, epsilon: float, binary: bool = False, limit: int = 100_000) -> None:
        self.invariants, self.epsilon = invariants, positive_number(epsilon, "epsilon")
        self.binary, self.limit = binary, whole_number(limit, "limit", 1)

    @property
    def guarantee(self) -> Guarantee:
        """Of one `release`, pure: epsilon t at L1 distance t, with delta = 0. `sample` promises nothing."""
        return Guarantee(self.invariants, "pure", Fraction(self.epsilon), 1)

    def law(self, table: ArrayLike) -> tuple[Integers, Float]:
        """All possible outputs (tables, d), and their probabilities (tables,).

        Parameters
        ----------
        table : array_like of int, (d,)

        Returns
        -------
        outputs : ndarray of int, (tables, d)
        probabilities : ndarray, (tables,)
        """
        allowed = equivalent_tables(self.invariants, table, self.binary, self.limit)
        weight = np.exp(-self.epsilon / 2 * abs(allowed - self.invariants.read_table(table)).sum(axis=1))
        return allowed, weight / weight.sum()

    def bias(self, table: ArrayLike) -> Float:
        """Expected output minus the confidential table, (d,): exact, up to rounding. Zero on every invariant.

        Parameters
        ----------
        table : array_like of int, (d,)

        Returns
        -------
        ndarray, (d,)
        """
        allowed, probability = self.law(table)
        return np.asarray(probability @ allowed - self.invariants.read_table(table))

    def sample(self, table: ArrayLike, size: int, rng: Seed = None) -> Integers:
        """Draw tables (size, d) in floating point, simulation only: they promise nothing.

        Parameters
        ----------
        table : array_like of int, (d,)
        size : int
        rng : Generator, int or None

        Returns
        -------
        ndarray of int, (size, d)

        Raises
        ------
        ValueError
            If the table is not allowed; if the invariants are not nested and the tables too many to list.
        """
        count, generator = whole_number(size, "size", 0), random_generator(rng)
        if (blocks := self.invariants.blocks) is not None:
            drawn = np.zeros((count, self.invariants.records), dtype=np.int64)
            for cells, block in self._laws(table, blocks):
                drawn[:, cells] = block.sample(count, generator)
            return drawn
        allowed, probability = self.law(table)
        return allowed[generator.choice(probability.size, size=count, p=probability)]

    def release(self, table: ArrayLike) -> Integers:
        """Draw a table (d,) for publication: exact, in integer arithmetic, from secure randomness, without a seed.

        Under nested invariants block by block (`BoundedBlock`). Under others all listed tables are proposed equally
        often, and y accepted with probability exp(-epsilon |y - x|_1 / 2). How long it takes depends on the table.

        Parameters
        ----------
        table : array_like of int, (d,)

        Returns
        -------
        ndarray of int, (d,)

        Raises
        ------
        ImportError
            If the invariants are nested and OpenDP is not installed (extra ``release``).
        ValueError
            If the table is not allowed; if the invariants are not nested and the tables too many to list.
        """
        confidential = self.invariants.read_table(table)
        if (blocks := self.invariants.blocks) is not None:
            released = np.zeros(confidential.size, dtype=np.int64)
            for cells, block in self._laws(confidential, blocks):
                released[cells] = block.release_sample()
            return released
        allowed = equivalent_tables(self.invariants, confidential, self.binary, self.limit)
        half = Fraction(self.epsilon) / 2
        while True:
            proposal = allowed[secrets.randbelow(allowed.shape[0])]
            if bernoulli_exp(half * int(abs(proposal - confidential).sum())):
                return proposal

    def _laws(self, table: ArrayLike, blocks: Integers) -> Iterator[tuple[Integers, BoundedBlock]]:
        """The blocks of nested invariants, (d,), and records that nothing holds, with laws about the table, (d,)."""
        values = allowed_table(self.invariants, table, self.binary)
        half = Fraction(self.epsilon) / 2
        for cells in block_members(blocks):
            yield cells, BoundedBlock(values[cells], half, self.binary)
        free = np.flatnonzero(blocks < 0)
        if free.size:
            yield free, BoundedBlock(values[free], half, self.binary, free=True)

    def sample_by_chain(
        self,
        table: ArrayLike,
        size: int,
        eta: float = 0.01,
        lag: int | None = None,
        runs: int = 200,
        max_iterations: int = 100_000,
        rng: Seed = None,
    ) -> BoundedDraws:
        """Draw tables by a Markov chain from the confidential one, stopped where its error is bounded, simulation only.

        Parameters
        ----------
        table : array_like of whole numbers, (d,)
        size : int
            Number of chains, one for every draw.
        eta : float
            Total variation distance at which they may stop, between 0 and 1.
        lag : int, optional
            Of the coupled chains, `BoundedKernel.burn_in` by default.
        runs, max_iterations : int
            Coupled pairs, and when they are given up.
        rng : numpy.random.Generator, SeedSequence, int or None

        Returns
        -------
        BoundedDraws
            With the bound reached. It is estimated, for this table alone: a delta of privacy would need one that
            holds for every equivalent table, so there is no release by a chain.

        Raises
        ------
        ValueError
            If the moves need not connect the tables, or a pair did not meet: then nothing bounds the error.
        """
        generator = random_generator(rng)
        values, eta = allowed_table(self.invariants, table, self.binary), share(eta, "eta")
        kernel = BoundedKernel(self.invariants, self.epsilon, values, self.binary)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CouplingWarning)  # of bounded tables small ones do meet; others are refused
            meetings = meeting_times(kernel, lag or kernel.burn_in, runs, max_iterations, generator)
        if not meetings.met.all():
            raise ValueError(
                f"{np.count_nonzero(~meetings.met)} of {runs} coupled chains did not meet within {max_iterations:,} "
                "iterations: nothing bounds the error of this chain. Give more iterations or epsilon, or fix more sums"
            )
        iterations = meetings.iterations_for(eta)
        states = np.zeros((whole_number(size, "size", 0), values.size), dtype=np.int64)
        kernel.advance(states, iterations, generator)
        return BoundedDraws(values + states, iterations, *meetings.bound(iterations))


@dataclass(frozen=True)
class BoundedDraws:
    """Tables drawn by a chain that was stopped, and how far its law may be from the one wanted.

    Attributes
    ----------
    tables : ndarray of int64, (size, d)
    iterations : int
        Of every chain, each from the confidential table.
    bound, standard_error : float
        Estimated upper bound on the total variation distance after so many iterations, from coupled chains of this very
        table; see `MeetingTimes.bound`.
    """

    tables: Integers
    iterations: int
    bound: float
    standard_error: float


class BoundedKernel(HeatBathKernel):
    """Exact redraws along basic moves among the tables that are not negative, or 0 and 1.

    States are differences y - x from the confidential table x, with probabilities proportional to
    exp(-epsilon |y - x|_1 / 2).

    Parameters
    ----------
    invariants : Invariants
        Nested sets, or both margins of a two-way table: the moves are known to connect their bounded tables.
    epsilon : float
        Loss per unit of L1 distance.
    table : ndarray of int64, (d,)
        x.
    binary : bool

    Raises
    ------
    ValueError
        If the invariants are others, or the table is not allowed itself.
    """

    name: ClassVar[str] = "bounded_heat_bath"

    def __init__(self, invariants: Invariants, epsilon: float, table: Integers, binary: bool = False) -> None:
        if invariants.blocks is None and two_way_shape(invariants) is None:
            raise ValueError(
                f"{invariants}: basic moves are known to connect bounded tables under nested sets and both margins of "
                "a two-way table only, and a chain that is not connected has another law"
            )
        super().__init__(Lattice(invariants), epsilon)
        self._table, self._ceiling = table, 1 if binary else ENDLESS
        self._redraw = self._reference = self._redraw_between_walls

    def _redraw_between_walls(
        self, states: Integers, cells: Integers, steps: Integers, choices: Integers, uniforms: Float, epsilon: float
    ) -> None:
        """As `redraw_in_numpy`, at half of epsilon: states (chains, d), moves (moves, width), choices (chains, n)."""
        redraw_in_numpy(states, cells, steps, choices, uniforms, epsilon / 2, self._walls)

    def _walls(self, cells: Integers, steps: Integers, noise: Integers) -> tuple[Integers, Integers]:
        """How often moves may be taken back and forth, (chains, 1) each, from noise on their cells, (chains, width)."""
        values = noise + self._table[cells]
        down, up = np.where(steps > 0, (values, self._ceiling - values), (self._ceiling - values, values))
        low, high = (np.where(steps == 0, ENDLESS, room).min(axis=1, keepdims=True) for room in (down, up))
        return -low, high


def equivalent_tables(invariants: Invariants, table: ArrayLike, binary: bool = False, limit: int = 100_000) -> Integers:
    """List every table of non-negative whole numbers with the same invariants.

    Parameters
    ----------
    invariants : Invariants
        What must be the same; every record must be in some set, unless tables are binary.
    table : array_like of whole numbers, (d,)
        Not negative.
    binary : bool
        List tables of 0 and 1 only.
    limit : int
        The most tables to list.

    Returns
    -------
    ndarray of int64, (tables, d)
        In lexicographic order.

    Raises
    ------
    ValueError
        If the table is itself not allowed, a record is in no set and so has no largest value, there are more than 500
        records, more than `limit` tables are equivalent, or the search for them meets too many dead ends.
    """
    values = allowed_table(invariants, table, binary)
    top = 1 if binary else int(values.sum())
    by_record = invariants.matrix.tocsc()
    held = [by_record.indices[by_record.indptr[j] : by_record.indptr[j + 1]] for j in range(invariants.records)]
    if not binary and any(sets.size == 0 for sets in held):
        free = next(j for j, sets in enumerate(held) if sets.size == 0)
        raise ValueError(f"record {free} is in no set: it can grow without end, and the tables cannot be listed")
    if invariants.records > _MOST_RECORDS:
        raise ValueError(
            f"a table of {invariants.records:,} records: at most {_MOST_RECORDS} can be searched; {_INSTEAD}"
        )
    found = []
    for searched, allowed in enumerate(_complete(invariants.apply(values), held, top)):
        if allowed is not None:
            found.append(allowed)
        if len(found) > limit:
            raise ValueError(f"more than {limit:,} tables are equivalent: listing them is refused; {_INSTEAD}")
        dead_ends = searched + 1 - len(found)
        if dead_ends > _DEAD_ENDS * limit:
            raise ValueError(f"{dead_ends:,} dead ends and {len(found):,} tables: the search is given up; {_INSTEAD}")
    return np.array(found, dtype=np.int64)


def _complete(remaining: Integers, held: list[Integers], top: int) -> Iterator[list[int] | None]:
    """Depth-first search over the records, with what each set still lacks, (m,); a set's last record takes all of it.

    Yields tables, and None at every dead end.
    """
    last = {int(row): j for j, sets in enumerate(held) for row in sets}
    table = [0] * len(held)

    def extend(j: int) -> Iterator[list[int] | None]:
        if j == len(held):
            yield table.copy()
            return
        sets = held[j]
        low, high = 0, min([top, *(int(remaining[row]) for row in sets)])
        closing = [int(remaining[row]) for row in sets if last[int(row)] == j]
        if closing:
            low, high = max(closing), min(high, *closing)
        if low > high:
            yield None
        for value in range(low, high + 1):
            table[j] = value
            remaining[sets] -= value
            yield from extend(j + 1)
            remaining[sets] += value

    yield from extend(0)


def allowed_table(invariants: Invariants, table: ArrayLike, binary: bool) -> Integers:
    """A table (d,), refused where it is itself out of bounds."""
    values = invariants.read_vector(table)
    if values.min(initial=0) < 0 or (binary and values.max(initial=0) > 1):
        needed = "0 or 1" if binary else "0 or more"
        raise ValueError(f"the table holds values from {values.min()} to {values.max()}: they must be {needed}")
    return values
