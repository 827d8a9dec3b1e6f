"""The laws of noise by the name that their module had; see `noise_mechanisms.laws`."""

from noise_mechanisms import laws
from noise_mechanisms.laws import *  # noqa: F403

__all__ = laws.__all__  # type: ignore[attr-defined]  # made when it is asked for
