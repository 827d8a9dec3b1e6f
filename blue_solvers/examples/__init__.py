"""Files to try the command on: one noisy measurement of `gallery.berkeley`."""

from blue_solvers.examples.files import BERKELEY, BERKELEY_SCHEMA, berkeley, write_berkeley

__all__ = ["BERKELEY", "BERKELEY_SCHEMA", "berkeley", "write_berkeley"]
