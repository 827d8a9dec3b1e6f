"""Descriptions of noisy tables, and the sparse equations that make them self-consistent."""

from typing import TYPE_CHECKING

from constraint_builders.lazy_names import names_when_asked
from constraint_builders.version import __version__ as __version__

if TYPE_CHECKING:
    from constraint_builders import gallery as gallery
    from constraint_builders.any_frame import read_tables as read_tables
    from constraint_builders.budget import gaussian_variance as gaussian_variance
    from constraint_builders.description.areas import Areas as Areas
    from constraint_builders.description.low_rank import LowRankPlusDiagonal as LowRankPlusDiagonal
    from constraint_builders.description.schema import Schema as Schema
    from constraint_builders.description.spine import Spine as Spine
    from constraint_builders.files import Format as Format
    from constraint_builders.files import add_format as add_format
    from constraint_builders.files import combine_sources as combine_sources
    from constraint_builders.files import format_schema as format_schema
    from constraint_builders.files import measurements_frame as measurements_frame
    from constraint_builders.files import production_settings as production_settings
    from constraint_builders.files import read_noisy_measurements as read_noisy_measurements
    from constraint_builders.files import read_schema_file as read_schema_file
    from constraint_builders.files import write_frame as write_frame
    from constraint_builders.files import write_schema_file as write_schema_file
    from constraint_builders.geography import Entities as Entities
    from constraint_builders.geography import Strategy as Strategy
    from constraint_builders.geography import aian_spine as aian_spine
    from constraint_builders.geography import bypass as bypass
    from constraint_builders.geography import group_tracts as group_tracts
    from constraint_builders.geography import osed as osed
    from constraint_builders.geography import regroup_blocks as regroup_blocks
    from constraint_builders.joint_problem import joint as joint
    from constraint_builders.problem import Problem as Problem
    from constraint_builders.sources import problem_of_sources as problem_of_sources
else:
    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "constraint_builders.gallery": (),
            "constraint_builders.any_frame": ("read_tables",),
            "constraint_builders.budget": ("gaussian_variance",),
            "constraint_builders.description.areas": ("Areas",),
            "constraint_builders.description.low_rank": ("LowRankPlusDiagonal",),
            "constraint_builders.description.schema": ("Schema",),
            "constraint_builders.description.spine": ("Spine",),
            "constraint_builders.files": (
                "Format",
                "add_format",
                "combine_sources",
                "format_schema",
                "measurements_frame",
                "production_settings",
                "read_noisy_measurements",
                "read_schema_file",
                "write_frame",
                "write_schema_file",
            ),
            "constraint_builders.geography": (
                "Entities",
                "Strategy",
                "aian_spine",
                "bypass",
                "group_tracts",
                "osed",
                "regroup_blocks",
            ),
            "constraint_builders.joint_problem": ("joint",),
            "constraint_builders.problem": ("Problem",),
            "constraint_builders.sources": ("problem_of_sources",),
        },
        former={
            "problem_from": "constraint_builders.read_tables",
        },
    )
