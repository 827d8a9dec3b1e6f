"""Proofs of answers and tests of measurements, in which no solver takes part."""

from blue_solvers.verification.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
