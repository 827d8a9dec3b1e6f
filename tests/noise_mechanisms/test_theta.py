"""Theta sums have all their terms."""

from fractions import Fraction

import numpy as np
import pytest

from noise_mechanisms.theta import theta_excess, theta_variance
from tests.helpers.every import every


@every("sigma2", [0.3, 0.7, 0.95, 1.0])
def test_theta_sums_have_all_their_terms(sigma2: float) -> None:
    """Against the sums themselves, in whole multiples of 2^-1000 of exp(-k^2 / 2 sigma2)."""
    q = np.exp(-0.5 / sigma2)
    weights = {k: Fraction(float(q)) ** (k * k) for k in range(1, 13)}
    total = 1 + 2 * sum(weights.values())
    variance = 2 * sum(k * k * w for k, w in weights.items()) / total
    assert theta_variance(np.array([sigma2]))[0] == pytest.approx(float(variance), rel=3e-15)
    assert theta_excess(np.array([sigma2]))[0] == pytest.approx(float(total - 1), rel=3e-15)
