"""Files to try the command on: noisy measurements of `gallery.berkeley`, and real censuses, rounded and perturbed."""

from blue_solvers.examples.files import (
    AUCKLAND_2013,
    BERKELEY,
    BERKELEY_SCHEMA,
    OTAGO_2018,
    OTAGO_AREAS,
    SYDNEY_2021,
    berkeley,
    write_auckland,
    write_berkeley,
    write_otago,
    write_sydney,
)

__all__ = [
    "AUCKLAND_2013",
    "BERKELEY",
    "BERKELEY_SCHEMA",
    "OTAGO_2018",
    "OTAGO_AREAS",
    "SYDNEY_2021",
    "berkeley",
    "write_auckland",
    "write_berkeley",
    "write_otago",
    "write_sydney",
]
