"""Laws by name: which there are, adding one from outside, and the law of a variance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from constraint_builders.description.noise import NOISE_LAWS, LawOrName
from constraint_builders.description.reals import positive_number, shown
from noise_mechanisms.laws.base_law import Law


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
    if "<locals>" in place:
        raise ValueError(f"law {name!r} is defined inside a function: define it at the top of a module")
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
