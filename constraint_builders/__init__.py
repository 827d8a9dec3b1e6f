"""Descriptions of noisy tables, and the sparse equations that make them self-consistent."""

from constraint_builders.lazy_names import names_when_asked
from constraint_builders.version import __version__ as __version__

__getattr__, __dir__ = names_when_asked(__name__, {"problem_from": "constraint_builders.read_tables"})
