"""Noise of whole numbers that leaves given sums exactly as they are (integer subspace differential privacy).

    invariants = Invariants.from_margins(schema, ["county", "education"])
    mechanism = GeneralizedLaplace(invariants, epsilon=0.25)
    mechanism.release(counts).table          # the same margins, other cells
    noise_covariance(mechanism).problem(...)  # for `blue_solvers.blue`

References
----------
Dharangutte, Gao, Gong and Yu, "Integer subspace differential privacy", AAAI 2023.
"""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
