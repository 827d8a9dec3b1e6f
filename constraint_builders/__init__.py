"""Descriptions of noisy tables, and the sparse equations that make them self-consistent."""

from typing import TYPE_CHECKING

from constraint_builders.lazy_names import names_when_asked
from constraint_builders.version import __version__ as __version__

if TYPE_CHECKING:
    from constraint_builders import gallery as gallery
    from constraint_builders.any_frame import problem_from as problem_from
    from constraint_builders.description.areas import Areas as Areas
    from constraint_builders.description.low_rank import LowRankPlusDiagonal as LowRankPlusDiagonal
    from constraint_builders.description.schema import Schema as Schema
    from constraint_builders.description.spine import Spine as Spine
    from constraint_builders.joint_problem import joint as joint
    from constraint_builders.problem import Problem as Problem
    from constraint_builders.sources import problem_of_sources as problem_of_sources
else:
    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "constraint_builders.gallery": (),
            "constraint_builders.any_frame": ("problem_from",),
            "constraint_builders.description.areas": ("Areas",),
            "constraint_builders.description.low_rank": ("LowRankPlusDiagonal",),
            "constraint_builders.description.schema": ("Schema",),
            "constraint_builders.description.spine": ("Spine",),
            "constraint_builders.joint_problem": ("joint",),
            "constraint_builders.problem": ("Problem",),
            "constraint_builders.sources": ("problem_of_sources",),
        },
    )
