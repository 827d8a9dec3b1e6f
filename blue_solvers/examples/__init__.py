"""Files to try the command on: one noisy measurement of `gallery.berkeley`, and a real census that was rounded."""

from blue_solvers.examples.files import (
    AUCKLAND_2013,
    BERKELEY,
    BERKELEY_SCHEMA,
    berkeley,
    write_auckland,
    write_berkeley,
)

__all__ = ["AUCKLAND_2013", "BERKELEY", "BERKELEY_SCHEMA", "berkeley", "write_auckland", "write_berkeley"]
