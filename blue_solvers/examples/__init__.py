"""Files to try things on: noisy measurements of `gallery.berkeley`, real censuses, networks and series."""

from blue_solvers.examples.files import (
    AUCKLAND_2013,
    BERKELEY,
    BERKELEY_SCHEMA,
    EMPLOYMENT,
    FREE_ENERGIES,
    OTAGO_2018,
    OTAGO_AREAS,
    POWER_HOUR,
    SYDNEY_2021,
    berkeley,
    write_auckland,
    write_berkeley,
    write_free_energies,
    write_otago,
    write_power_hour,
    write_sydney,
)

__all__ = [
    "AUCKLAND_2013",
    "BERKELEY",
    "BERKELEY_SCHEMA",
    "EMPLOYMENT",
    "FREE_ENERGIES",
    "OTAGO_2018",
    "OTAGO_AREAS",
    "POWER_HOUR",
    "SYDNEY_2021",
    "berkeley",
    "write_auckland",
    "write_berkeley",
    "write_free_energies",
    "write_otago",
    "write_power_hour",
    "write_sydney",
]
