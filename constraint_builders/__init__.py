"""Descriptions of noisy tables, and the sparse equations that make them self-consistent."""

from constraint_builders import gallery
from constraint_builders.any_frame import problem_from
from constraint_builders.description.areas import Areas
from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.problem import Problem
from constraint_builders.sources import problem_of_sources
from constraint_builders.version import __version__

__all__ = [
    "Areas",
    "LowRankPlusDiagonal",
    "Problem",
    "Schema",
    "Spine",
    "__version__",
    "gallery",
    "problem_from",
    "problem_of_sources",
]
