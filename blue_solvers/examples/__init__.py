"""Files to try things on: a noisy measurement of `gallery.berkeley`, a real rounded census, two real networks."""

from blue_solvers.examples.files import (
    AUCKLAND_2013,
    BERKELEY,
    BERKELEY_SCHEMA,
    FREE_ENERGIES,
    POWER_HOUR,
    berkeley,
    write_auckland,
    write_berkeley,
    write_free_energies,
    write_power_hour,
)

__all__ = [
    "AUCKLAND_2013",
    "BERKELEY",
    "BERKELEY_SCHEMA",
    "FREE_ENERGIES",
    "POWER_HOUR",
    "berkeley",
    "write_auckland",
    "write_berkeley",
    "write_free_energies",
    "write_power_hour",
]
