"""Laws by name: which there are, adding one from outside, and the law of a variance; noise for cells of differing ones.

It is drawn for simulation, or added for publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.noise import NOISE_LAWS, LawOrName
from constraint_builders.description.reals import positive_number, random_generator, real_array, shown, whole_number
from constraint_builders.description.source_values import SourceValues
from constraint_builders.description.tails import GAUSSIAN_TAILS, MOST_KURTOSIS, Tails
from constraint_builders.memory import require_memory
from noise_mechanisms.laws.base_law import BLOCK, LARGEST_WHOLE, Law, Seed, blocks, check_variances, fill


def kind_of(name: LawOrName) -> type[Law]:
    """The class of the law of a name; of a law that a name does not describe itself, which answers as one.

    Raises
    ------
    ValueError
        If there is no law of that name.
    """
    if isinstance(name, Law):
        return name  # type: ignore[return-value]
    if not isinstance(name, str) or name not in NOISE_LAWS:
        raise ValueError(f"law {shown(name)} is unknown: use one of {', '.join(map(repr, NOISE_LAWS))}")
    return _class_at(NOISE_LAWS[name])


class _Laws(Mapping[str, type[Law]]):
    """All laws by name, those that were added included."""

    def __getitem__(self, name: str) -> type[Law]:
        if name not in NOISE_LAWS:
            raise KeyError(name)
        return kind_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NOISE_LAWS)

    def __len__(self) -> int:
        return len(NOISE_LAWS)

    def __repr__(self) -> str:
        return f"LAWS({', '.join(self)})"


LAWS: Mapping[str, type[Law]] = _Laws()


def add_law(kind: type[Law]) -> None:
    """Make a law known by its name, everywhere that a name of a law is taken.

    Parameters
    ----------
    kind : type
        A subclass of `ContinuousLaw` or `DiscreteLaw` at the top of a module; another process has to add it again.

    Raises
    ------
    TypeError
        If it is no such class, or lacks a method.
    ValueError
        If it is not at the top of a module, has no name, or another law has its name.
    """
    if not (isinstance(kind, type) and issubclass(kind, Law)):
        raise TypeError(f"a law is a subclass of ContinuousLaw or DiscreteLaw: got {shown(kind)}")
    missing = sorted(kind.__abstractmethods__)
    if missing:
        raise TypeError(f"law {kind.__qualname__} lacks {', '.join(missing)}: define them")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"law {kind.__qualname__} has no name: give the class a text as its attribute name")
    place = f"{kind.__module__}:{kind.__qualname__}"
    if NOISE_LAWS.get(name, place) != place:
        raise ValueError(f"the name {name!r} is that of {NOISE_LAWS[name]}: give {kind.__qualname__} another")
    if "." in kind.__qualname__:
        raise ValueError(f"law {name!r} is defined inside a function or class: define it at the top of a module")
    NOISE_LAWS[name] = place


def _class_at(place: str) -> type[Law]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def law(name: str, variance: float) -> Law:
    """Return the named law with the given variance.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
    variance : float
        The actual variance, positive and finite; see `noise_mechanisms.laws` for the difference from a parameter.

    Returns
    -------
    Law

    Raises
    ------
    ValueError
        If there is no law of that name, or the variance not positive and finite.

    Examples
    --------
    >>> law("discrete_gaussian", 4.0)
    DiscreteGaussian(sigma2=4.0)
    """
    return kind_of(name).from_variance(variance)


def variance_of(name: str, scale: float) -> float:
    """The variance of a mechanism's noise from the scale that it was run with, as `Problem` takes it.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
    scale : float
        Of Gaussian noise sigma, the root of the parameter sigma2; of Laplace noise the scale b, sensitivity / epsilon;
        of any other the parameter of its law.

    Returns
    -------
    float
        In squared counts. Of discrete Gaussian noise it is less than sigma2, of Laplace noise about 2 b^2.

    Raises
    ------
    ValueError
        If there is no law of that name, or the scale not positive and finite.

    Examples
    --------
    >>> variance_of("laplace", 2.0), round(variance_of("discrete_gaussian", 0.5), 3), variance_of("gaussian", 3.0)
    (8.0, 0.215, 9.0)
    """
    kind, number = kind_of(name), positive_number(scale, f"{name}: scale")
    if kind.family == "gaussian":
        number = positive_number(number * number, f"{name}: the square of scale")
    return positive_number(kind(number).variance, f"{name}: the variance of scale {number:g}")


def tails_of(name: LawOrName, variances: Iterable[Float]) -> Tails:
    """Tails of the noise of tables of some variances, (cells,) each; 0 exact, ``inf`` not measured."""
    if name == "gaussian":
        return GAUSSIAN_TAILS
    kind, least = kind_of(name), [float(own.min(initial=np.inf, where=own > 0)) for own in variances]
    laws = {own: kind.from_variance(min(max(own, 1 / MOST_KURTOSIS), MOST_KURTOSIS)) for own in least}
    if not laws:
        return Tails()
    some, excess = laws[least[0]], [min(max(0.0, laws[own].excess_kurtosis), MOST_KURTOSIS) for own in least]
    return Tails(tuple(excess), some.step, some.fixed, min(own.by_proxy for own in laws.values()))


def tails_in(problem: Problem, sources: SourceValues | None = None) -> Tails:
    """Those of all observed tables; where several sources measured, of what each of them did."""
    variances = problem.geounit_variances or np.split(problem.variances, problem.observed.offsets[1:-1])
    if sources is not None:
        table = np.searchsorted(problem.observed.offsets, sources.cell, "right") - 1
        variances = [sources.variances[table == i] for i in range(len(variances))]
    return tails_of(problem.noise.law, variances)


def draw(name: LawOrName, variance: ArrayLike, rng: Seed = None, columns: int | None = None) -> Float:
    """Draw independent noise for cells of differing variances, simulation only: not differentially private.

    Parameters
    ----------
    name : str or Law
        The kind of noise, a name in `LAWS`; or a law that a variance does not describe.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. Variance 0 gives noise 0.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness. The same seed, variances and columns give the same noise.
    columns : int, optional
        Number K of independent replicates of all cells. None draws one, without the trailing axis.

    Returns
    -------
    ndarray of float64, shape variance.shape, or variance.shape + (K,)
        Whole numbers for a discrete law. Memory beyond this array is a few megabytes.

    Raises
    ------
    ValueError
        If there is no law of that name, or a variance is NaN, infinite, negative, or too large for a
        discrete law.
    """
    kind = kind_of(name)
    variance = real_array(variance, f"{kind.name}: variance")
    check_variances(kind, variance)
    cells = np.ravel(variance)
    replicates = 1 if columns is None else whole_number(columns, f"{kind.name}: columns", 0)
    require_memory(8.0 * cells.size * replicates, f"noise of {cells.size:,} x {replicates:,} cells", "draw fewer")
    rng = random_generator(rng)
    noise = np.empty((cells.size, replicates))
    for rows in blocks(cells.size, BLOCK // max(replicates, 1)):
        fill(kind._draw, kind._parameter_of(cells[rows]), noise[rows], rng)
    return noise.reshape(variance.shape if columns is None else (*variance.shape, columns))


def release(name: LawOrName, variance: ArrayLike, values: ArrayLike) -> Float:
    """Values with noise of release grade, one draw for every cell, each of its own variance; for publication.

    Parameters
    ----------
    name : str or Law
        The kind of noise, a name in `LAWS`; or a law that a variance does not describe.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. A cell of variance 0 stays as it is.
    values : array_like, of the same shape
        Confidential; see `Law.release`.

    Returns
    -------
    ndarray of float64, shape variance.shape
        Cells of one variance go to OpenDP together, about 10 microseconds each; every further variance costs about 0.2
        ms.

    Raises
    ------
    ImportError
        If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
    ValueError
        If there is no law of that name; a variance is NaN, infinite, negative or too large for a discrete law; the
        values have another shape, are not what `Law.release` takes or, for a discrete law, above 2^53: the answer is in
        float64.
    """
    kind = kind_of(name)
    variance, confidential = real_array(variance, f"{kind.name}: variance"), real_array(values, "values")
    if confidential.shape != variance.shape:
        raise ValueError(f"values must have the shape {variance.shape} of the variances: got {confidential.shape}")
    if kind.discrete and (abs(confidential) > LARGEST_WHOLE).any():
        raise ValueError(f"values go up to {abs(confidential).max():g}: those above 2^53 are not exact in float64")
    check_variances(kind, variance)
    cells, released = confidential.ravel(), confidential.ravel().copy()
    distinct, place = np.unique(variance.ravel(), return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(place.ravel(), minlength=distinct.size))
    for value, end, start in zip(distinct.tolist(), ends, [0, *ends[:-1]], strict=True):
        if value:
            group = order[start:end]
            released[group] = kind.from_variance(value).release(cells[group])
    return released.reshape(variance.shape)
