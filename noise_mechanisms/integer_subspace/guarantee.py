"""What a mechanism promises, in the words of integer subspace differential privacy, and how promises compose.

Every promise is about two tables that agree in all invariants. It says nothing about tables that do not, and
what the invariants themselves disclose is not counted. Its unit is distance 1, which two equivalent tables may never
have: see `Guarantee.smallest_loss`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from constraint_builders.budget import Measure
from constraint_builders.description.reals import positive_number, share, unit_number
from noise_mechanisms.accounting import Loss, pure_to_zcdp, zcdp_epsilon
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.lattice import Lattice

Norm: TypeAlias = Literal[1, 2]


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy on the tables that agree in the invariants, growing with their distance (Definition 2).

    It also holds of whatever is computed from the release and nothing else (Proposition 7). An output that uses the
    confidential table again, or releases under other invariants, is a composition: see `compose`.

    Attributes
    ----------
    invariants : Invariants
        What the release does not change.
    measure : {"pure", "zcdp"}
        At distance t the mechanism is ``loss * t``-DP ("pure"), or ``loss * t^2``-zCDP ("zcdp").
    loss : Fraction or float
    norm : {1, 2}
        How the distance between two histograms is measured.
    delta : float
        Allowed besides at distance 1; 0 from an exact sampler. The approximate form of a promise brings it in, growing
        with distance as equation (2) says.
    """

    invariants: Invariants
    measure: Measure
    loss: Loss
    norm: Norm
    delta: float = 0.0

    @property
    def smallest_distance(self) -> float:
        """Lower bound on the distance between different equivalent tables, in `norm`; see `Lattice`."""
        smallest = Lattice(self.invariants).smallest_distance
        return float(smallest) if self.norm == 1 else math.sqrt(smallest)

    @property
    def smallest_loss(self) -> float:
        """The loss between the nearest different equivalent tables: what the nominal loss understates."""
        return self.loss_at(self.smallest_distance)

    def loss_at(self, distance: float) -> float:
        """Epsilon ("pure") or rho ("zcdp") between two equivalent tables at this distance."""
        return float(self.loss) * (distance if self.measure == "pure" else distance**2)

    def compose(self, other: Guarantee) -> Guarantee:
        """The promise of both releases together (Proposition 6): on the tables that agree in all invariants of both.

        Losses and deltas add. Pure and concentrated losses are added as concentrated ones, epsilon being
        epsilon^2 / 2. Distances in L2 are at most those in L1, so of two norms L1 stays.

        Raises
        ------
        ValueError
            If they speak of different numbers of records, or a pure promise with a delta meets a concentrated one.
        """
        norm: Norm = 2 if self.norm == other.norm == 2 else 1
        delta = self.delta + other.delta
        joint = self.invariants.both(other.invariants)
        if self.measure == other.measure:
            return Guarantee(joint, self.measure, self.loss + other.loss, norm, delta)
        if delta:
            raise ValueError(
                "a pure promise with delta > 0 does not compose with a concentrated one: compose them as pure "
                "promises, or use an exact sampler"
            )
        return Guarantee(joint, "zcdp", self.concentrated_loss + other.concentrated_loss, norm)

    @property
    def concentrated_loss(self) -> Loss:
        """The rho per squared distance: `loss`, or epsilon^2 / 2 for a pure promise."""
        return self.loss if self.measure == "zcdp" else pure_to_zcdp(self.loss)

    def approximate(self, delta: float) -> Guarantee:
        """The (epsilon, delta) form of a concentrated promise, valid at every distance of 1 or more.

        With rho per squared distance, epsilon = rho + 2 sqrt(rho log(1/delta)); see `gaussian_sigma`, its inverse.

        Raises
        ------
        ValueError
            If the promise is pure already, or delta is not between 0 and 1.
        """
        if self.measure == "pure":
            raise ValueError("the promise is pure already: it holds with delta = 0")
        return Guarantee(
            self.invariants, "pure", zcdp_epsilon(self.loss, delta, "simple"), self.norm, self.delta + delta
        )

    def __str__(self) -> str:
        loss = f"{float(self.loss):.6g} t-DP" if self.measure == "pure" else f"{float(self.loss):.6g} t^2-zCDP"
        delta = f", delta {self.delta:.3g}" if self.delta else ""
        return (
            f"{loss}{delta} between tables at L{self.norm} distance t that agree in all invariants of "
            f"{self.invariants}. Different such tables are at distance {self.smallest_distance:.4g} or more, so the "
            f"smallest loss that matters is {self.smallest_loss:.4g}, not the nominal one. What the invariants "
            "disclose is not counted."
        )


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The standard deviation with which Gaussian noise on any lattice is (epsilon, delta)-private (Definition 13).

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        (sqrt(L + epsilon) + sqrt(L)) / (sqrt(2) epsilon), where L = log(1/delta).

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    The constant that the paper's Definition 13 leaves open; it depends neither on the dimension nor on the invariants.
    Let z have probabilities exp(-|z|^2 / 2 sigma^2) / theta(0) on the lattice and let v be the difference of two
    equivalent tables, itself a lattice point. For every alpha > 1 completing the square gives

        sum over z of P(z)^alpha P(z + v)^(1 - alpha)
            = exp(alpha (alpha - 1) |v|^2 / 2 sigma^2) theta((1 - alpha) v) / theta(0),

    theta(c) being the sum of exp(-|z + c|^2 / 2 sigma^2) over the lattice. By Poisson summation theta is a sum of
    cosines with positive weights, largest at 0. So the Renyi divergence is at most alpha rho with rho =
    |v|^2 / (2 sigma^2), and equal to it for whole alpha: rho-zCDP on any lattice. Markov's inequality bounds the
    chance of a loss above epsilon t, at distance t = |v|, by exp(-(epsilon - rho t)^2 / 4 rho), where now
    rho = 1 / (2 sigma^2). Against delta (e^(epsilon t) - 1) / (e^epsilon - 1), equation (2), the logarithm of the
    quotient grows with t, at a rate above epsilon - (epsilon - rho t) / 2. What holds at t = 1 holds beyond, and
    there it is epsilon = rho + 2 sqrt(rho L).
    """
    epsilon, log_inverse = positive_number(epsilon, "epsilon"), -math.log(share(delta, "delta"))
    return (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse)) / (math.sqrt(2) * epsilon)


def stopping_delta(epsilon: float, eta: float) -> float:
    """The delta that a sampler costs whose law is within total variation eta of an epsilon-DP one: (1 + e^epsilon) eta.

    It tells what stopping a Markov chain would cost, not what floating point does. From
    P'(S) <= P(S) + eta <= e^epsilon Q(S) + eta <= e^epsilon (Q'(S) + eta) + eta.
    """
    epsilon, eta = positive_number(epsilon, "epsilon"), unit_number(eta, "eta")
    return min(1.0, (1 + math.exp(min(epsilon, 700.0))) * eta)
