"""Libraries that only some parts need, and the one way to say that one of them is missing."""

from __future__ import annotations

EXTRA_OF = {
    "polars": "frames",
    "msgspec": "frames",
    "pyarrow": "frames",
    "fastexcel": "excel",
    "matplotlib": "plots",
    "opendp": "release",
    "pyamg": "multigrid",
    "numba": "fast",
    "xarray": "arrays",
    "distributed": "cluster",
}


def missing_extra(need: str, extra: str, otherwise: str = "") -> ImportError:
    """The error of a library that is not installed, which says how to install it.

    Parameters
    ----------
    need : str
        What needs which library: ``"pictures need matplotlib"``.
    extra : str
        The extra of this package that brings it.
    otherwise : str
        What to do instead, if anything.

    Examples
    --------
    >>> print(missing_extra("pictures need matplotlib", "plots"))
    pictures need matplotlib: pip install 'blue-solvers[plots]'
    """
    return ImportError(f"{need}: pip install 'blue-solvers[{extra}]'{otherwise and f', or {otherwise}'}")
