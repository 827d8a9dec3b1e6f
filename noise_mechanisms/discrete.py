"""The laws of noise by the name that their module had; see `noise_mechanisms.laws`."""

from noise_mechanisms.laws import (
    LAWS,
    ContinuousLaw,
    DiscreteGaussian,
    DiscreteLaplace,
    DiscreteLaw,
    Gaussian,
    Laplace,
    Law,
    add_law,
    draw,
    kind_of,
    law,
    release,
    variance_of,
)

__all__ = [
    "LAWS",
    "ContinuousLaw",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteLaw",
    "Gaussian",
    "Laplace",
    "Law",
    "add_law",
    "draw",
    "kind_of",
    "law",
    "release",
    "variance_of",
]
