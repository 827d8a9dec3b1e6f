"""Solvers for the best linear unbiased estimate, behind one linear operator."""

from typing import TYPE_CHECKING

import blue_solvers.signals  # noqa: F401  first: from then on signals find their handler
from blue_solvers.about import __version__ as __version__
from constraint_builders.lazy_names import names_when_asked

if TYPE_CHECKING:
    from blue_solvers import pictures as pictures
    from blue_solvers import plots as plots
    from blue_solvers.adapters import ExactMarginals as ExactMarginals
    from blue_solvers.adapters import ExactMinTrace as ExactMinTrace
    from blue_solvers.adapters import judge as judge
    from blue_solvers.adapters import noise_of as noise_of
    from blue_solvers.adapters import problem_from_measurements as problem_from_measurements
    from blue_solvers.adapters import reconcile as reconcile
    from blue_solvers.benchmarking import benchmark as benchmark
    from blue_solvers.components.tree.projected_work import projected_work as projected_work
    from blue_solvers.contract import ConvergenceError as ConvergenceError
    from blue_solvers.contract import Info as Info
    from blue_solvers.contract import Prepared as Prepared
    from blue_solvers.contract import Solver as Solver
    from blue_solvers.contract import UnsupportedProblemError as UnsupportedProblemError
    from blue_solvers.estimates import Estimate as Estimate
    from blue_solvers.goodness import fit_test as fit_test
    from blue_solvers.nonnegative import NonnegativeFit as NonnegativeFit
    from blue_solvers.nonnegative import NotConvergedError as NotConvergedError
    from blue_solvers.nonnegative import controlled_rounding as controlled_rounding
    from blue_solvers.nonnegative import counts_posterior as counts_posterior
    from blue_solvers.nonnegative import inverted_intervals as inverted_intervals
    from blue_solvers.nonnegative import nnls as nnls
    from blue_solvers.nonnegative import ols as ols
    from blue_solvers.nonnegative import refine_intervals as refine_intervals
    from blue_solvers.nonnegative import unit_records as unit_records
    from blue_solvers.nonnegative.anchored_fit import anchored_fit as anchored_fit
    from blue_solvers.nonnegative.max_fit import max_fit as max_fit
    from blue_solvers.nonnegative.reweighted_fit import reweighted_fit as reweighted_fit
    from blue_solvers.nonnegative.sequential_fit import sequential_fit as sequential_fit
    from blue_solvers.operator import BlueOperator as BlueOperator
    from blue_solvers.operator import blue as blue
    from blue_solvers.operator import estimate as estimate
    from blue_solvers.results import Result as Result
    from blue_solvers.results import write_result as write_result
    from blue_solvers.solvers.registry import *  # noqa: F403
    from blue_solvers.spine_design import BlockFunctionals as BlockFunctionals
    from blue_solvers.spine_design import allocate_budget as allocate_budget
    from blue_solvers.spine_design import best_spine as best_spine
    from blue_solvers.spine_design import entity_variances as entity_variances
    from blue_solvers.spine_design import entity_workload as entity_workload
    from blue_solvers.spine_design import measuring_entities as measuring_entities
    from blue_solvers.spine_design import optimise_spine as optimise_spine
    from blue_solvers.spine_design.report import compare_spines as compare_spines
    from blue_solvers.streaming import cluster as cluster
    from blue_solvers.streaming import estimate_measurements as estimate_measurements
    from blue_solvers.streaming import partition_source as partition_source
    from blue_solvers.streaming import stream as stream
    from blue_solvers.streaming.partition import partition as partition
    from blue_solvers.testing import check_solver as check_solver
    from blue_solvers.threads import thread_limit as thread_limit
    from blue_solvers.uncertainty import Replicates as Replicates
    from blue_solvers.uncertainty import SecondMoments as SecondMoments
    from blue_solvers.uncertainty import cell_weights as cell_weights
    from blue_solvers.uncertainty import confidence_ellipsoid as confidence_ellipsoid
    from blue_solvers.uncertainty import covariance_block as covariance_block
    from blue_solvers.uncertainty import distribution_free_band as distribution_free_band
    from blue_solvers.uncertainty import distribution_free_ellipsoid as distribution_free_ellipsoid
    from blue_solvers.uncertainty import estimate_variances as estimate_variances
    from blue_solvers.uncertainty import half_widths as half_widths
    from blue_solvers.uncertainty import proved_variances as proved_variances
    from blue_solvers.uncertainty import simultaneous_band as simultaneous_band
    from blue_solvers.uncertainty import variances as variances
    from blue_solvers.uncertainty.functionals import functionals as functionals
    from blue_solvers.uncertainty.intervals import intervals as intervals
    from blue_solvers.verification import Certificate as Certificate
    from blue_solvers.verification import Fit as Fit
    from blue_solvers.verification import certify as certify
    from constraint_builders import Areas as Areas
    from constraint_builders import Problem as Problem
    from constraint_builders import Schema as Schema
    from constraint_builders import Spine as Spine
    from constraint_builders import joint as joint
    from constraint_builders import read_tables as read_tables
else:
    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "blue_solvers.adapters": (
                "ExactMarginals",
                "ExactMinTrace",
                "judge",
                "noise_of",
                "problem_from_measurements",
                "reconcile",
            ),
            "blue_solvers.benchmarking": ("benchmark",),
            "blue_solvers.components.tree.projected_work": ("projected_work",),
            "blue_solvers.contract": (
                "ConvergenceError",
                "Info",
                "Prepared",
                "Solver",
                "UnsupportedProblemError",
            ),
            "blue_solvers.estimates": ("Estimate",),
            "blue_solvers.goodness": ("fit_test",),
            "blue_solvers.nonnegative": (
                "NonnegativeFit",
                "NotConvergedError",
                "controlled_rounding",
                "counts_posterior",
                "inverted_intervals",
                "nnls",
                "ols",
                "refine_intervals",
                "unit_records",
            ),
            "blue_solvers.nonnegative.anchored_fit": ("anchored_fit",),
            "blue_solvers.nonnegative.max_fit": ("max_fit",),
            "blue_solvers.nonnegative.reweighted_fit": ("reweighted_fit",),
            "blue_solvers.nonnegative.sequential_fit": ("sequential_fit",),
            "blue_solvers.operator": ("BlueOperator", "blue", "estimate"),
            "blue_solvers.pictures": (),
            "blue_solvers.plots": (),
            "blue_solvers.results": ("Result", "write_result"),
            "blue_solvers.spine_design": (
                "BlockFunctionals",
                "allocate_budget",
                "best_spine",
                "entity_variances",
                "entity_workload",
                "measuring_entities",
                "optimise_spine",
            ),
            "blue_solvers.spine_design.report": ("compare_spines",),
            "blue_solvers.streaming": ("estimate_measurements", "partition_source", "stream"),
            "blue_solvers.streaming.cluster": (),
            "blue_solvers.streaming.partition": ("partition",),
            "blue_solvers.testing": ("check_solver",),
            "blue_solvers.threads": ("thread_limit",),
            "blue_solvers.uncertainty": (
                "Replicates",
                "SecondMoments",
                "cell_weights",
                "confidence_ellipsoid",
                "covariance_block",
                "distribution_free_band",
                "distribution_free_ellipsoid",
                "estimate_variances",
                "half_widths",
                "proved_variances",
                "simultaneous_band",
                "variances",
            ),
            "blue_solvers.uncertainty.functionals": ("functionals",),
            "blue_solvers.uncertainty.intervals": ("intervals",),
            "blue_solvers.verification": ("Certificate", "Fit", "certify"),
            "constraint_builders": ("Areas", "Problem", "Schema", "Spine", "joint", "read_tables"),
        },
        whole="blue_solvers.solvers.registry",
        former={
            "ProjectedWork": "blue_solvers.components.tree.projected_work.ProjectedWork",
            "problem_from": "blue_solvers.read_tables",
        },
    )
