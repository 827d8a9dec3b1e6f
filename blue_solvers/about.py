"""The version that is installed, and the logger that says what was prepared."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("blue-solvers")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "(not installed: run from its source)"

logger = logging.getLogger("blue_solvers")
logger.addHandler(logging.NullHandler())
