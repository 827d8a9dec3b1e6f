"""The version, and the logger that says what was prepared."""

from __future__ import annotations

import logging

import blue_solvers.own_packages  # noqa: F401  before any of them is imported
from constraint_builders.version import __version__

__all__ = ["__version__", "logger"]

logger = logging.getLogger("blue_solvers")
logger.addHandler(logging.NullHandler())
