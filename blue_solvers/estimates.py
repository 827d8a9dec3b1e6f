"""An estimate with everything that belongs to it: values, errors, how they were computed, their proof, adjustments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from blue_solvers.contract import Info
from blue_solvers.quantiles import normal_multiple, read_level, takes_confidence_level
from blue_solvers.verification import Certificate, Fit, fit_of_estimate
from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from blue_solvers.verification.weighed_noise import rounding_beside
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout, Name
from constraint_builders.lazy_names import former_method
from constraint_builders.tied_together import TiedTogether, tied_together
from noise_mechanisms import draw_noise
from noise_mechanisms.laws.named_laws import draw, tails_in

if TYPE_CHECKING:
    import polars
    import xarray

    from blue_solvers.operator import BlueOperator

PROMISE = 1e-9  # standard errors
EXACT = 1e-8  # standard errors up to which an answer is called exact
REFINEMENTS = 2
ROUNDINGS = 10  # times the rounding of all figures: a smaller bound than that is mostly rounding
Judge = Callable[[Float], Certificate]
Frame = TypeVar("Frame")


def proved(
    y: Float, x: Float, linear: Callable[[Float], Float], judge: Judge, variances: Float
) -> tuple[Float, Certificate]:
    """The estimate of the observed cells with its certificate, refined by the solver that made it.

    Parameters
    ----------
    y, x : ndarray, (n,)
        What was measured, 0 where nothing was, and its estimate.
    linear : callable
        The linear part of the estimate of the observed cells, (n,) to (n,).
    judge : callable
        The certificate of x.
    variances : ndarray, (n,)
        Of what was measured.

    Returns
    -------
    x : ndarray, (n,)
    certificate : Certificate
        Of these values.
    """
    certificate = judge(x)
    for _ in range(REFINEMENTS):
        bound = bound_of(certificate)  # rounding may hide what is known exactly
        if bound <= PROMISE or bound <= min(EXACT, ROUNDINGS * rounding_beside(x, variances)):
            break
        refined = x + linear(y - x)
        better = judge(refined)
        if bound_of(better) >= bound and np.isfinite(bound):
            break
        gained = bound_of(better) <= bound / 2 < np.inf  # otherwise what is left is rounding
        x, certificate = refined, better
        if not gained:
            break
    return x, certificate


def is_exact(certificate: Certificate) -> bool:
    """Whether an answer is proved to be the best estimate, to 1e-8 standard errors."""
    return bound_of(certificate) <= EXACT


def bound_of(certificate: Certificate) -> float:
    """Of how far an answer is from the best estimate; infinite where nothing is proved."""
    return np.inf if certificate.bound is None else certificate.bound


def tabulated(problem: Problem, x: Float) -> Float:
    """The desired cells, (m,), from consistent observed ones, (n,), NaN where not estimable."""
    determined = problem.determined
    places = measured_places(determined) if determined.is_placed else np.full(1, -1)
    values = x[places] if (places >= 0).all() else determined.tabulate(x[:, None])[:, 0]
    return np.where(problem.lost, np.nan, values)


def where_measured(problem: Problem, x: Float) -> Float:
    """Observed cells, (n,), NaN where nothing was measured: what is wanted of those is composed of the others."""
    return np.where(problem.unmeasured, np.nan, x) if problem.has_unmeasured else x


@dataclass(frozen=True)
class Adjustments:
    """Measurements of the desired cells beside their estimates; no array is writable in an `Estimate`'s.

    Attributes
    ----------
    value, variance : ndarray, (m,)
        What was measured, NaN where nothing was, and the variance of its noise, infinite there.
    adjustment : ndarray, (m,)
        Estimate less value, of which is taken off what its law adds on average; NaN where nothing was measured.
    adjustment_z : ndarray, (m,)
        The adjustment in its own standard errors, standard normal where the noise is as declared and normal; NaN where
        no other measurement checks the cell, and where the estimate is not the best one.
    """

    value: Float
    variance: Float
    adjustment: Float
    adjustment_z: Float


def adjustments(problem: Problem, y: Float, noise: Float, values: Float, variances: Float, best: bool) -> Adjustments:
    """Compare estimates with what was measured.

    Parameters
    ----------
    problem : Problem
    y, noise : ndarray, (n,)
        What was measured over the observed layout, and the variances of its noise, infinite where nothing was.
    values, variances : ndarray, (m,)
        Estimates over the desired layout, and their variances.
    best : bool
        Whether they are the best linear unbiased estimates.

    Returns
    -------
    Adjustments
    """
    place = measured_places(problem)
    measured = (place >= 0) & np.isfinite(noise[place])
    value, variance = np.full(place.size, np.nan), np.full(place.size, np.inf)
    value[measured], variance[measured] = y[place[measured]], noise[place[measured]]
    adjustment = values - value
    z = np.full(place.size, np.nan)
    if best:
        left = np.where(measured, variance - variances, 0.0)
        checked = left > LEAST_CHECKED * np.where(measured, variance, 0.0)
        z[checked] = adjustment[checked] / np.sqrt(left[checked])
    return Adjustments(value, variance, adjustment, z)


def measured_places(problem: Problem) -> Index:
    """For every desired cell its position in the observed layout, -1 where it was not measured, (m,)."""
    place = np.full(problem.desired.size, -1, dtype=np.intp)
    observed = np.arange(problem.observed.size)
    for name, own in shared_tables(problem):
        place[own] = observed[problem.observed.slice(name)]
    place[problem.unmeasured[place]] = -1  # those at -1 stay there
    return place


def shared_tables(problem: Problem) -> list[tuple[Name, Index]]:
    """The observed tables that are desired too, and where their cells sit in the desired layout, in their own order."""
    cells = np.arange(problem.desired.size)
    shared = []
    for name in problem.observed.names:
        try:
            shared.append((name, problem.desired.turned(cells, name)))
        except ValueError:  # it is not wanted
            continue
    return shared


@dataclass(frozen=True, eq=False)
class Estimate:
    """What `blue_solvers.estimate` and `BlueOperator.estimate` return.

    Attributes
    ----------
    operator : BlueOperator
        What it was made with.
    y : ndarray, (n,)
        What was measured, less what its law adds on average. Not writable: a copy, unless given not writable.
    values : ndarray, (m,)
        Over the desired layout, the offset included. Not writable.
    info : Info
        How these values were computed.
    proof : Certificate or None
        How far from the best estimate the values may be, where that was worked out with them.
    observed : ndarray, (n,) or None
        Estimates of the observed cells, where made with the values; if others are desired, NaN where not measured.
    """

    operator: BlueOperator
    y: Float
    values: Float
    info: Info
    proof: Certificate | None = None
    observed: Float | None = None

    @property
    def problem(self) -> Problem:
        """What was estimated."""
        return self.operator.problem

    @property
    def layout(self) -> Layout:
        """Where the values sit, by which whatever takes the estimate for an array lays them out."""
        return self.problem.desired

    @cached_property
    def tables(self) -> Mapping[Any, Float]:
        """The values of every desired table, {name: array of its shape}."""
        return self.problem.desired.tables(self.values)

    @cached_property
    def variances(self) -> Float:
        """Exact variance of every value, (m,), in squared units of the counts. Not writable."""
        return _kept(self.operator.variances())

    @cached_property
    def std_errors(self) -> Float:
        """Exact standard error of every value, (m,), in units of the counts. Not writable."""
        return _kept(np.sqrt(self.variances))

    @takes_confidence_level
    def interval(self, confidence_level: float = 0.95, method: str = "z") -> tuple[Float, Float]:
        """Intervals that cover every value with a probability.

        Parameters
        ----------
        confidence_level : float
        method : {"z"}
            From exact variances, for normal noise. For methods that draw replicates see `blue_solvers.intervals`.

        Returns
        -------
        lower, upper : ndarray, (m,)

        Raises
        ------
        ValueError
            If the method is another, or the level no probability.
        """
        if method != "z":
            raise ValueError(
                f"method must be 'z': got {method!r}; use blue_solvers.intervals(P, y, method=..., rng=...) for "
                "intervals from replicates"
            )
        half = normal_multiple(read_level(confidence_level)) * self.std_errors
        return self.values - half, self.values + half

    def certificate(self) -> Certificate:
        """A proof of how far these values are from the best estimate, in which no solver takes part.

        As ``certify(problem, y, values)`` gives it; where other cells are desired than observed, of the values together
        with an estimate of the observed cells.

        Returns
        -------
        Certificate
        """
        return self.proof or self.operator.certificate(self.y, self.values, self.observed)

    def goodness_of_fit(self, draws: int = 200, rng: np.random.Generator | int | None = None) -> Fit:
        """Whether the measurements agree with the noise that they claim.

        Parameters
        ----------
        draws : int
            Replicates of noise that is not Gaussian; with 0 the p-value takes it for Gaussian.
        rng : Generator or int, optional
            What they are drawn from.

        Returns
        -------
        Fit
        """
        P, y, sources = self.operator.over_observed, self.y, self.problem.sources_of(self.y)

        def residuals(generator: np.random.Generator) -> Float:
            if not sources:
                noise = draw_noise(P.problem, 1, generator)[:, 0]
                return noise - P @ noise
            noise = draw(P.problem.noise.law, sources.variances, generator, 1)[:, 0]
            return noise - (P @ sources.combined(noise, y.size))[sources.cell]

        x = P @ P.problem.noise.published(y) + P.offset if self.observed is None else self.observed
        drawn = residuals if draws and P.problem.noise.law != "gaussian" else None
        given, tails = (P.problem, y, np.where(np.isnan(x), y, x), P.variances()), tails_in(P.problem, sources)
        return fit_of_estimate(*given, replicate=drawn, draws=draws or 1, rng=rng, apply=P.__matmul__, tails=tails)

    fit = former_method("fit", goodness_of_fit)

    @cached_property
    def adjustments(self) -> Adjustments:
        """What was measured of every desired cell, by how much the estimate moved it, and how unlikely that is.

        Of cells that several sources measured it is their combination; `adjustments_by_source` says each.
        """
        return self._adjustments(self.y, self.problem.variances)

    @cached_property
    def adjustments_by_source(self) -> Mapping[str, Adjustments]:
        """The same of what each source measured; empty where no cell was measured by several."""
        sources = self.problem.sources_of(self.y)
        if not sources:
            return {}
        return {name: self._adjustments(*sources.by(i, self.y.size)) for i, name in enumerate(sources.names)}

    def _adjustments(self, y: Float, noise: Float) -> Adjustments:
        """Adjustments of what was measured, (n,), with noise of such variances, (n,)."""
        found = adjustments(self.problem, y, noise, self.values, self.variances, self.operator.info.exact)
        if not isinstance(law := self.problem.noise.law, str) and law.mean:  # values are shown as they were published
            found = replace(found, value=found.value + np.where(found.variance > 0, law.mean, 0.0))
        return Adjustments(*map(_kept, vars(found).values()))

    @overload
    def to_frame(self, confidence_level: float = 0.95) -> polars.DataFrame: ...

    @overload
    def to_frame(self, confidence_level: float = 0.95, *, like: Frame) -> Frame: ...

    @takes_confidence_level
    def to_frame(self, confidence_level: float = 0.95, *, like: Any = None) -> Any:
        """A long table: a row for every cell; needs the extra ``frames``.

        Parameters
        ----------
        confidence_level : float
            Of the intervals.
        like : data frame, optional
            One of the kind to give: of pandas, pyarrow or polars, which is the default.

        Returns
        -------
        data frame
            The keys of the cell, ``estimate``, ``std_error``, ``lower``, ``upper``, ``note`` where some cells are NaN,
            then what was measured: ``value`` and ``variance``, empty and ``inf`` where nothing was, ``adjustment`` and
            ``adjustment_z`` (see `Adjustments`); where several sources measured a cell, these four for every source,
            ``value (register)`` and so on.
        """
        from constraint_builders.files import estimates_frame, frame_like

        frame = estimates_frame(self.problem, self.values, self.std_errors, *self.interval(confidence_level))
        frame = self.with_measurements(frame)
        return frame if like is None else frame_like(like, frame)

    def with_measurements(self, frame: polars.DataFrame) -> polars.DataFrame:
        """A frame with a row for every desired cell, and after its columns what was measured, as in `to_frame`.

        Parameters
        ----------
        frame : polars.DataFrame, m rows

        Returns
        -------
        polars.DataFrame, m rows
        """
        from constraint_builders.files import with_measurements
        from constraint_builders.files.columns import MEASURED, with_source

        if not self.adjustments_by_source:
            return with_measurements(frame, **vars(self.adjustments))
        for source, own in self.adjustments_by_source.items():
            frame = with_measurements(frame, **vars(own)).rename({name: with_source(name, source) for name in MEASURED})
        return frame

    def to_xarray(self) -> xarray.Dataset:
        """Every table as an array over its factors, with its standard errors beside it; needs the extra ``arrays``.

        Tables of a geography have its level, with the codes of its geounits, as their first dimension.

        Returns
        -------
        xarray.Dataset
            Arrays ``"sex * age estimate"`` and ``"sex * age std_error"``, say; `read_tables` reads those of one place.
        """
        from constraint_builders.files.labelled_arrays import dataset

        return dataset(self.problem, self.values, self.std_errors)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Float:
        """The values: an estimate of the observed tables, in any order, may be given to `certify`."""
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    @cached_property
    def tied(self) -> TiedTogether:
        """What ties the numbers together; as text it is one line."""
        return tied_together(self.problem)

    def __repr__(self) -> str:
        proof = f"; {self.proof}" if self.proof and str(self.proof) not in self.info.reason else ""
        what = f"{len(self.problem.desired.names)} tables, {self.values.size:,} cells"
        return f"Estimate({what}; {self.info.reason}{proof}; {self.tied})"


def _kept(values: Float) -> Float:
    """An array of any shape that is worked out once, which nobody changes."""
    values.flags.writeable = False
    return values
