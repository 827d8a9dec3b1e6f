"""Cells that were not measured: whatever an estimate says of them is right to 600 bits, or NaN."""

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import polars
import pytest
from scipy.special import ndtri

from blue_solvers import SOLVERS, ConvergenceError, Estimate, UnsupportedProblemError, blue, functionals
from blue_solvers.estimates import is_exact
from constraint_builders import Problem
from tests.helpers.effort import lengths
from tests.helpers.oracles.compare import EPSILON, ROUNDING, largest
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import Reference, solve
from tests.helpers.oracles.invent import Invented, Kind, invent

KINDS = {
    "flat": Kind(spine=False, decades=2.0),
    "flat, cell by cell": Kind(spine=False, cellwise=True, decades=2.0),
    "spine": Kind(decades=2.0),
    "spine, cell by cell": Kind(cellwise=True, decades=2.0),
    "areas": Kind(areas="sets", decades=2.0),
    "weighted areas, cell by cell": Kind(areas="weights", cellwise=True, decades=2.0),
    "shared noise": Kind(covariance="shared", decades=2.0),
}
TO = 1e-6  # standard errors


@pytest.mark.few(3)
@pytest.mark.parametrize("open_cells", [False, True], ids=["determined", "NaN where not"])
@pytest.mark.parametrize("kind", KINDS)
@lengths("number", 6, 120)
def test_what_is_said_of_cells_is_right_or_nan(kind: str, open_cells: bool, number: int) -> None:
    """By every solver, proved while it is made and not; of tables that were wanted, and of all observed ones."""
    wrong, judged = [], Counter[str]()
    for seed in range(number):
        found = invent(seed, KINDS[kind], has_unmeasured_cells)
        if found is None:
            continue
        right = _right(found)
        described = _wanting(found, right, open_cells)
        try:
            problem = described.problem(undetermined="nan" if open_cells else "error")
        except ValueError as error:
            assert "not estimable" in str(error)  # noqa: PT017  of what several tables determine together
            judged["refused"] += 1
            continue
        told = Told(problem, described, found, right)
        for solver in SOLVERS:
            wrong += [(seed, solver, *own) for own in told.differences(solver, judged)]
    assert not wrong
    assert judged["estimates"] > 3 * judged["refused"]
    assert judged["cells not measured"] or not open_cells


def has_unmeasured_cells(described: Description) -> bool:
    return not np.isfinite(described.variances).all()


def _right(found: Invented) -> dict[tuple, Reference]:
    """What is so of the observed tables and those that were drawn, by geolevel and factors."""
    described = found.description
    own = {(b.level, b.factors): Block(b.level, b.factors) for b in (*described.observed, *described.desired)}
    described = replace(described, desired=tuple(sorted(own.values(), key=lambda b: b.level)))
    whole, cuts = solve(described, found.y), np.cumsum(_sizes(described))[:-1]
    parts = zip(*(np.split(of, cuts) for of in (whole.estimate, whole.variances, whole.determined)), strict=True)
    return {(b.level, b.factors): Reference(*own) for b, own in zip(described.desired, parts, strict=True)}


def _together(right: dict[tuple, Reference], blocks: tuple[Block, ...]) -> Reference:
    """What is so of some of these tables, in their order."""
    own = [right[b.level, b.factors] for b in blocks]
    parts = ([r.estimate for r in own], [r.variances for r in own], [r.determined for r in own])
    return Reference(*(np.concatenate(of) for of in parts))


def _wanting(found: Invented, right: dict[tuple, Reference], open_cells: bool) -> Description:
    """All these tables are wanted, or of them the ones that are determined."""
    kept = [Block(*key) for key, own in right.items() if open_cells or own.determined.all()]
    return replace(found.description, desired=tuple(kept))


def _sizes(described: Description) -> list[int]:
    return [described.members(b.level).size * prod(described.shape(b.factors)) for b in described.desired]


class Told:
    """What estimates say of a problem, beside what is so."""

    def __init__(
        self, problem: Problem, described: Description, found: Invented, right: dict[tuple, Reference]
    ) -> None:
        self.problem, self.y = problem, found.y
        self.desired, self.observed = (_together(right, own) for own in (described.desired, described.observed))
        self.floor = ROUNDING * EPSILON * largest(found)
        self.measured_of = _measured_of(described, found.y)

    def differences(self, solver: str, judged: Counter[str]) -> list[tuple[bool, str]]:
        """Everything that a solver says wrongly, with whether it was to be proved."""
        wrong = []
        try:
            P = blue(self.problem, solver)
        except (UnsupportedProblemError, ConvergenceError):
            return wrong
        for certify in (False, True):
            try:
                est = P.estimate(self.y, certify=certify)
            except (UnsupportedProblemError, ConvergenceError):
                continue
            if est.info.exact:
                judged["estimates"] += 1
                judged["cells not measured"] += int(np.isinf(self.measured_of[1]).sum())
                wrong += [(certify, what) for what in self._wrong(est)]
        return wrong

    def _wrong(self, est: Estimate) -> list[str]:
        right, wrong = self.desired, []
        if not _agree(est.values, right.estimate, TO * right.std_errors + self.floor):
            wrong.append("values")
        if not _agree(est.variances, right.variances, TO * right.variances + EPSILON):
            wrong.append("variances")
        if np.isfinite(functionals(est.operator, self.y, np.ones(est.values.size)).covariance).all() != (
            right.determined.all()
        ):
            wrong.append("functionals")
        if est.observed is not None:
            said = ~np.isnan(est.observed)
            if not said[~self.problem.unmeasured].all():
                wrong.append("nothing said of measured cells")
            near = TO * self.observed.std_errors + self.floor
            if not (abs(est.observed - self.observed.estimate) <= near)[said].all():
                wrong.append("observed")
            if is_exact(est.certificate()) and not is_exact(replace(est, proof=None).certificate()):
                wrong.append("proof")
            if not np.isnan(est.goodness_of_fit(draws=0).residuals[self.problem.unmeasured]).all():
                wrong.append("residuals")
        return wrong + self._wrong_beside(est, right)

    def _wrong_beside(self, est: Estimate, right: Reference) -> list[str]:
        """Adjustments, intervals, and the long table."""
        (value, variance), own, wrong = self.measured_of, est.adjustments, []
        if not (np.array_equal(own.value, value, equal_nan=True) and np.allclose(own.variance, variance, 1e-12, 0)):
            wrong.append("measurements")
        near = TO * right.std_errors + self.floor
        if not _agree(own.adjustment, right.estimate - value, near):
            wrong.append("adjustments")
        if not np.isnan(own.adjustment_z[np.isinf(variance) | np.isnan(right.estimate)]).all():
            wrong.append("adjustment_z")
        half = ndtri(0.975) * right.std_errors
        for end, sign in zip(est.interval(), (-1, 1), strict=True):
            if not _agree(end, right.estimate + sign * half, 3 * near + np.sqrt(EPSILON)):
                wrong.append("interval")
        frame = est.to_frame()
        if not _agree(_column(frame, "estimate"), est.values, 0.0):
            wrong.append("frame")
        if not _agree(_column(frame, "value"), value, 0.0):
            wrong.append("frame's values")
        return wrong


def _agree(told: np.ndarray, right: np.ndarray, near: np.ndarray | float) -> bool:
    """Whether figures are near enough, and NaN where the right ones are."""
    nan = np.isnan(right)
    return bool(np.array_equal(np.isnan(told), nan) and (abs(told - right) <= near)[~nan].all())


def _column(frame: polars.DataFrame, name: str) -> np.ndarray:
    return frame[name].cast(polars.Float64).fill_null(np.nan).to_numpy()


def _measured_of(described: Description, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of desired cells what was measured, NaN where nothing was, and its variance."""
    value, variance, start = dict[tuple, np.ndarray](), dict[tuple, np.ndarray](), 0
    v = described.variances
    for block in described.observed:
        own = slice(start, start + block.values.size)
        variance[block.level, block.factors] = v[own]
        value[block.level, block.factors] = np.where(np.isinf(v[own]), np.nan, y[own])
        start = own.stop
    keys = [(b.level, b.factors) for b in described.desired]
    wanted = list(zip(keys, _sizes(described), strict=True))
    return (
        np.concatenate([value.get(key, np.full(n, np.nan)) for key, n in wanted]),
        np.concatenate([variance.get(key, np.full(n, np.inf)) for key, n in wanted]),
    )
