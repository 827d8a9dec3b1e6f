"""Release-grade draws by OpenDP's exact samplers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from constraint_builders.extras import needing

UNBIASED = (0, 14, 2)  # the first version whose samplers are


def opendp_measurement(shape: str, atom: str, scale: float) -> Callable[[NDArray[Any]], list[float]]:
    """OpenDP's mechanism: shape "gaussian" or "laplace", atom "i64" (discrete) or "f64" (continuous)."""
    dp = _opendp()
    domain = dp.vector_domain(dp.atom_domain(T=atom, **({} if atom == "i64" else {"nan": False})))
    with _contrib_enabled():
        if shape == "gaussian":
            return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=scale)


def _opendp() -> ModuleType:
    """OpenDP, of a version whose samplers are unbiased.

    Raises
    ------
    ImportError
        If it is missing or older.
    """
    with needing("release_sample needs OpenDP", "release"):
        found = version("opendp")
        import opendp.prelude as dp
    if not _is_unbiased(found):
        raise ImportError(
            f"release_sample needs OpenDP {'.'.join(map(str, UNBIASED))} or later, since the samplers of earlier ones "
            f"are biased: {found} is installed. Upgrade it, or install the extra 'release'"
        )
    return dp


def _is_unbiased(found: str) -> bool:
    """Whether a version is `UNBIASED` or later; its own pre-releases are not."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(.*)", found)
    if match is None:
        return False
    numbers = tuple(int(part) for part in match.groups()[:3])
    return numbers > UNBIASED or (
        numbers == UNBIASED and not re.match(r"[-_.]?(a|b|rc|c|dev|alpha|beta|pre)", match[4])
    )


@contextmanager
def _contrib_enabled() -> Iterator[None]:
    """OpenDP's feature "contrib", which its noise mechanisms ask for, left as it was found."""
    from opendp.mod import GLOBAL_FEATURES, disable_features, enable_features

    was_enabled = "contrib" in GLOBAL_FEATURES
    enable_features("contrib")
    try:
        yield
    finally:
        if not was_enabled:
            disable_features("contrib")
