"""Noise of whole numbers that leaves given sums exactly as they are (integer subspace differential privacy).

    invariants = Invariants.from_margins(schema, ["county", "education"])
    mechanism = GeneralizedLaplace(invariants, epsilon=0.25)
    mechanism.release(counts).table          # the same margins, other cells
    noise_covariance(mechanism).problem(...)  # for `blue_solvers.blue`

References
----------
Dharangutte, Gao, Gong and Yu, "Integer subspace differential privacy", AAAI 2023.
"""

from noise_mechanisms.chain_diagnostics import potential_scale_reduction
from noise_mechanisms.integer_subspace.bounded import BoundedDraws, BoundedKernel, BoundedMechanism, equivalent_tables
from noise_mechanisms.integer_subspace.chains import (
    ChainSampler,
    CouplingWarning,
    MeetingTimes,
    dispersed_starts,
    meeting_times,
)
from noise_mechanisms.integer_subspace.guarantee import Guarantee, gaussian_sigma, stopping_delta
from noise_mechanisms.integer_subspace.heat_bath import HeatBathKernel
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.jumps import JumpKernel
from noise_mechanisms.integer_subspace.lattice import Lattice, SmithForm, smith_form
from noise_mechanisms.integer_subspace.mechanisms import (
    GeneralizedGaussian,
    GeneralizedLaplace,
    LatticeRelease,
    projected_noise,
)
from noise_mechanisms.integer_subspace.spread import NoiseCovariance, log_points_within, noise_covariance, tail_bound

__all__ = [
    "BoundedDraws",
    "BoundedKernel",
    "BoundedMechanism",
    "ChainSampler",
    "CouplingWarning",
    "GeneralizedGaussian",
    "GeneralizedLaplace",
    "Guarantee",
    "HeatBathKernel",
    "Invariants",
    "JumpKernel",
    "Lattice",
    "LatticeRelease",
    "MeetingTimes",
    "NoiseCovariance",
    "SmithForm",
    "dispersed_starts",
    "equivalent_tables",
    "gaussian_sigma",
    "log_points_within",
    "meeting_times",
    "noise_covariance",
    "potential_scale_reduction",
    "projected_noise",
    "smith_form",
    "stopping_delta",
    "tail_bound",
]
