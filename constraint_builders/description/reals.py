"""Reading numbers, arrays, vectors and matrices that somebody gives: every kind alike, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from numbers import Rational as AnyRational
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.labelled import refuse_labels

LARGEST_SUM = 2.0**62
MOST_SHOWN = 60  # characters of a value in a message
SMALLEST, LARGEST = 1e-100, 1e150  # what precisions, and products of variances or with values, hold in float64
ROUNDING = 1e-9  # of the largest entry of a covariance that was worked out
LARGEST_VALUE = 1e100  # whose square, in units of any noise, float64 holds
LARGEST_WEIGHT = 1e50  # of a cell in an equation or an area, whose square times any variance it holds
SMALLEST_WEIGHT = 1e-250  # by which it holds the largest divided
Rational: TypeAlias = Fraction | int | str
_UNWIELDY = re.compile(r".{200}|[eE][+-]?\d{4}")  # text whose Fraction would fill the memory


def real_number(value: Any, what: str) -> float:
    """One real number of any kind (int, Fraction, Decimal, numpy scalar) as a float.

    Parameters
    ----------
    value : int, float, Fraction, Decimal, numpy scalar or ndarray of shape ()
    what : str
        What an error calls it.

    Raises
    ------
    ValueError
        If it is a truth value, text, complex, masked or anything else that is no real number, or too large or too small
        for a float. NaN and infinity pass: what they mean is the caller's to say.
    """
    if isinstance(value, np.ndarray) and value.shape == () and not isinstance(value, np.ma.MaskedArray):
        value = value[()]
    if not _is_real(value):
        raise ValueError(f"{what} is {shown(value)}: give a number, not {_kind(value)}")
    try:
        with np.errstate(over="ignore"):
            number = float(value)
    except OverflowError:
        number = np.inf
    except ValueError:  # a signalling NaN of decimal
        number = np.nan
    if np.isinf(number) and not _is_infinite(value):
        raise ValueError(f"{what} is {shown(value)}: it is too large for a float")
    if number == 0 and value != 0:
        raise ValueError(f"{what} is {shown(value)}: it is too small for a float, though not 0")
    return number


def positive_number(value: Any, what: str) -> float:
    """One positive, finite number of any kind as a float; `ValueError` for anything else."""
    return _fitting(value, what, lambda number: 0 < number < np.inf, "a positive, finite number")


def number_from_0(value: Any, what: str) -> float:
    """One finite number of 0 or more, of any kind, as a float; `ValueError` for anything else."""
    return _fitting(value, what, lambda number: 0 <= number < np.inf, "a finite number that is not negative")


def share(value: Any, what: str) -> float:
    """One number between 0 and 1, both excluded, of any kind as a float; `ValueError` for anything else."""
    return _fitting(value, what, lambda number: 0 < number < 1, "a number between 0 and 1, both excluded")


def unit_number(value: Any, what: str) -> float:
    """One number from 0 to 1 of any kind as a float; `ValueError` for anything else."""
    return _fitting(value, what, lambda number: 0 <= number <= 1, "a number from 0 to 1")


def _fitting(value: Any, what: str, fits: Callable[[float], bool], needed: str) -> float:
    number = real_number(value, what)
    if not fits(number):
        raise ValueError(f"{what} is {shown(value)}: give {needed}")
    return number


def whole_number(value: Any, what: str, least: int) -> int:
    """A whole number of any integer kind as an int.

    Raises
    ------
    ValueError
        If it is of another kind, a truth value included, or below `least`.
    """
    whole = isinstance(value, Integral) and not isinstance(value, (bool, np.timedelta64))
    if not whole or int(value) < least:
        raise ValueError(f"{what} is {shown(value)}: give a whole number of {least} or more")
    return int(value)


def random_generator(rng: Any) -> np.random.Generator:
    """The generator that a seed means, or the one that is given; `ValueError` for what is neither."""
    try:
        if not isinstance(rng, (bool, np.bool_)):
            return np.random.default_rng(rng)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"rng is {shown(rng)}: give a generator, a whole number of 0 or more, or None")


def real_array(values: Any, what: str, truth_values: bool = False) -> NDArray[np.float64]:
    """Real numbers of any kind and shape as an array of floats: the one that was given, where it is one already.

    Parameters
    ----------
    values : array_like
    what : str
        What an error calls them.
    truth_values : bool
        Whether arrays of truth values count as 0 and 1.

    Raises
    ------
    ValueError
        If they are truth values, text, complex, dates or masked, ragged, labelled otherwise than by position, or too
        large or too small for floats. NaN and infinity pass: what they mean is the caller's to say.
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    refuse_masked(values, what)
    refuse_labels(values, what)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{what} does not hold numbers in rows of one length: give an array") from None
    if not array.shape and array.dtype.kind not in "fiub":
        return np.array(real_number(array[()] if isinstance(values, np.ndarray) else values, what))
    if array.dtype.kind == "O":
        numbers = [real_number(value, f"an entry of {what}") for value in array.ravel()]
        return np.array(numbers, dtype=np.float64).reshape(array.shape)
    kind = "b" if _holds_truth(values) else array.dtype.kind
    if kind not in ("fiub" if truth_values else "fiu"):
        raise ValueError(f"{what} does not hold numbers but {_KINDS.get(kind, array.dtype.name)}: give real numbers")
    with np.errstate(over="ignore"):
        result = array.astype(np.float64, copy=False)
    if array.dtype.itemsize > result.dtype.itemsize:
        if (np.isinf(result) & ~np.isinf(array)).any():
            raise ValueError(f"{what} holds a number that is too large for a float")
        if ((result == 0) & (array != 0)).any():
            raise ValueError(f"{what} holds a number that is too small for a float, though not 0")
    return result


def whole_array(values: Any, what: str) -> NDArray[np.int64]:
    """Whole numbers of any kind and shape as 64-bit integers.

    Raises
    ------
    ValueError
        If they are no real numbers, not whole, or too large to be summed in 64 bits.
    """
    numbers = real_array(values, what)
    if not (np.isfinite(numbers) & (numbers == np.rint(numbers))).all():
        raise ValueError(f"{what} must hold whole numbers: round it, or leave out what is not a count")
    if abs(numbers).sum() > LARGEST_SUM:
        raise ValueError(f"{what} holds {abs(numbers).max():g}: whole numbers so large cannot be summed in 64 bits")
    array = np.asarray(values)
    whole = array if array.dtype.kind in "iuf" else np.array([int(value) for value in array.ravel()])
    return whole.astype(np.int64).reshape(array.shape)


def refuse_masked(values: Any, what: str) -> None:
    """Raise `ValueError` for a masked array with masked cells, or a list that holds one."""
    if any(np.ma.is_masked(part) for part in _parts(values, np.ma.MaskedArray)):
        raise ValueError(
            f"{what} is a masked array, and what its mask hides has no meaning here: fill it, with NaN and an infinite "
            "variance where nothing was measured"
        )


def shown(value: Any) -> str:
    """A value as a message shows it: on one line, and not too long."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no whole numbers of so many digits
        text = f"a huge {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


_KINDS = {"b": "truth values", "U": "text", "S": "text", "c": "complex numbers", "M": "dates", "m": "durations"}


_SINGULAR = {"b": "a truth value", "U": "text", "S": "text", "c": "a complex number", "M": "a date", "m": "a duration"}


def _is_real(value: Any) -> bool:
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_, np.timedelta64))


def _is_infinite(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_infinite()
    return isinstance(value, (float, np.floating)) and bool(np.isinf(value))


def _holds_truth(values: Any) -> bool:
    """Whether truth values hide among the numbers of a list, of which numpy makes 0 and 1."""
    arrays = any(part.dtype.kind == "b" for part in _parts(values, np.ndarray))
    return arrays or any(True for _ in _parts(values, (bool, np.bool_)))


def _parts(values: Any, kinds: type | tuple[type, ...]) -> Iterator[Any]:
    """The parts of some kind of what is given: of nested lists, or itself."""
    if isinstance(values, kinds):
        yield values
    elif isinstance(values, (list, tuple)):
        wanted = tuple(
            kind for kind in set(map(type, values)) if issubclass(kind, (list, tuple)) or issubclass(kind, kinds)
        )
        for value in values if wanted else ():
            yield from _parts(value, kinds) if isinstance(value, wanted) else ()


def _kind(value: Any) -> str:
    if isinstance(value, np.ma.MaskedArray):
        return "a masked value"
    kind = np.dtype(type(value)).kind if isinstance(value, (bool, str, bytes, complex, np.generic)) else "O"
    return _SINGULAR.get(kind, type(value).__name__)


def plain_variances(variances: Sequence[Any]) -> Float | None:
    """Numbers of Python that are usable variances, as one array; None where some are anything else."""
    if not set(map(type, variances)) <= {int, float, np.float64}:
        return None
    usable = all(SMALLEST <= own <= LARGEST or own == 0 or own == np.inf for own in variances)
    return np.array(variances, dtype=np.float64) if usable else None


def checked_variances(variances: ArrayLike, what: str) -> Float:
    """A writable copy of variances, of the same shape.

    Raises
    ------
    ValueError
        If one is no number, negative, NaN, above 0 and below 1e-100, or finite and above 1e150; 0 is exact and
        ``inf`` not measured.
    """
    variances = np.array(real_array(variances, what))
    usable = variances >= 0
    if not usable.all():
        value = variances[~usable][0]
        word = "NaN" if np.isnan(value) else "negative"
        raise ValueError(f"{what} is {word} ({value}): give a number of 0 or more, or inf for a cell not measured")
    refuse_extreme(variances, what)
    return variances


def refuse_extreme(variances: Float, what: str, instead: str = "give 0 for what is known exactly") -> None:
    """Raise `ValueError` if a variance, of any shape, is so small or large that estimates would not be finite."""
    small = variances[(variances > 0) & (variances < SMALLEST)]
    if small.size:
        raise ValueError(f"{what} is {small[0]:g}, below {SMALLEST:g}: {instead}")
    large = variances[(variances > LARGEST) & (variances < np.inf)]
    if large.size:
        raise ValueError(f"{what} is {large[0]:g}, above {LARGEST:g}: give inf for what was not measured")


def refuse_no_covariance(covariance: Float, what: str) -> None:
    """Raise `ValueError` for a matrix, or several (..., n, n), that no random numbers have for a covariance."""
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    rounding = ROUNDING * abs(covariance).max(axis=(-2, -1), keepdims=True, initial=0.0)
    deviations = np.sqrt(np.maximum(variances, 0))
    if (variances < -rounding[..., 0]).any():
        raise ValueError(f"{what} holds negative variances: give covariance matrices")
    if (abs(covariance - np.swapaxes(covariance, -1, -2)) > rounding).any():
        raise ValueError(f"{what} is not symmetric: a covariance equals its transpose")
    if (abs(covariance) > deviations[..., None] * deviations[..., None, :] + rounding).any():
        raise ValueError(f"{what} holds more than the product of two standard deviations: correlations are 1 at most")


def refuse_large(numbers: Float, what: str, largest: float) -> None:
    """Raise `ValueError` if one of finite numbers, of any shape, is so large that estimates would not be finite."""
    if not numbers.size or -largest <= numbers.min() <= numbers.max() <= largest:
        return
    large = numbers[abs(numbers) > largest]
    if large.size:
        raise ValueError(f"{what} holds {large[0]:g}, beyond {largest:g}: scale it, or what it is of")


def read_matrix(
    A: Any, what: str = "A", largest: float = LARGEST_WEIGHT, smallest: float = SMALLEST_WEIGHT
) -> sparse.csr_array:
    """A copy as a sparse matrix of finite numbers that are neither too large nor, but for 0, too small.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not sparse.issparse(A):
        A = real_array(A, what, truth_values=True)
    if A.ndim != 2 or not A.shape[1]:
        raise ValueError(f"{what} must be a matrix with at least one column: got shape {A.shape}")
    matrix = sparse.csr_array(in_floats(A), copy=True)
    matrix.data = real_array(matrix.data, what, truth_values=True)
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{what} holds NaN or infinite entries: give finite numbers")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    refuse_large(matrix.data, what, largest)
    if (small := matrix.data[abs(matrix.data) < smallest]).size:
        raise ValueError(f"{what} holds {small[0]:g}, below {smallest:g}: scale it, or give 0")
    return matrix


def in_floats(A: Any) -> Any:
    """A matrix whose numbers are of few bits in floats, before entries of one place are summed in theirs."""
    return A.astype(np.float64) if A.dtype.kind in "biu" or A.dtype.itemsize < 8 else A


def read_vector(values: ArrayLike, size: int, what: str) -> Float:
    """A copy as a vector, (size,), of finite numbers, not too large ones.

    Raises
    ------
    ValueError
        If it is none.
    """
    vector = np.array(real_array(values, what))
    if vector.shape != (size,):
        raise ValueError(f"{what} must have shape ({size},): got {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{what} holds NaN or infinite values: give finite numbers")
    refuse_large(vector, what, LARGEST_VALUE)
    return vector


def exact_number(value: Rational, what: str) -> Fraction:
    """A number as a fraction; `TypeError` or `ValueError` that names what it is where it is none, or no exact one."""
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"{what} is the float {value}, which is not exact: give a Fraction or a string such as '1/10'")
    if isinstance(value, str) and _UNWIELDY.search(value):
        raise ValueError(f"{what} is {value[:20]!r} and so on: give a number of fewer digits")
    if not isinstance(value, (bool, np.timedelta64)) and isinstance(value, AnyRational):
        return Fraction(int(value.numerator), int(value.denominator))  # numpy's integers would overflow
    plain = not isinstance(value, str) or (value.isascii() and "_" not in value)
    try:
        if plain and isinstance(value, (str, Decimal)):
            return Fraction(value)
    except (ValueError, ArithmeticError):
        pass
    raise ValueError(f"{what} is {shown(value)}: give a Fraction or a string such as '104/4099'")


def in_digits(number: Fraction) -> str:
    """A fraction as a message shows it: exact where that is short."""
    text = str(number)
    return text if len(text) <= MOST_SHOWN else f"{Decimal(number.numerator) / number.denominator:.3g}"
