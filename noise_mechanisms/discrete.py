"""The laws of noise by the name that their module had; see `noise_mechanisms.laws`."""

from noise_mechanisms import laws
from noise_mechanisms.laws import *  # noqa: F403

__all__ = laws.__all__
