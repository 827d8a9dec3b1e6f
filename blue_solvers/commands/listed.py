"""The subcommands: the module of each, of which no more are loaded than are asked for, and what it is for."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    purpose: str


class FormerCommand(NamedTuple):
    module: str
    now: str


COMMANDS = {
    "estimate": Command(
        "estimate",
        "make noisy tables consistent: best linear unbiased estimates with standard errors and intervals; of several "
        "inputs what was measured apart of the same places, together",
    ),
    "query": Command(
        "query",
        "counts, published tables, shares, differences and ranks of any places, with intervals, from what estimate "
        "stored",
    ),
    "tables": Command(
        "which_tables",
        "the published tables that a stored result can answer, and why it cannot answer the others",
    ),
    "report": Command(
        "report_page",
        "show a result on one page: its fit, its certificate, the largest adjustments, its precision, its figures",
    ),
    "simulate": Command(
        "simulate",
        "make a noisy release, in the layout of noisy measurement files, from true counts by block",
    ),
    "design": Command(
        "design_spine",
        "build a geographic spine around off-spine entities, and judge it by exact variances before any noise is drawn",
    ),
    "info": Command(
        "info",
        "describe noisy tables: sizes, rank, which assumptions hold, which solver auto would take and why",
    ),
    "demo": Command(
        "demo",
        "measure the admissions to Berkeley of 1973 with noise, estimate them, and compare with the truth",
    ),
}
FORMER = {  # names of earlier versions, which still work for one release, and what is said instead
    "joint": FormerCommand("estimate", "blue-solvers estimate INPUT INPUT ..."),
    "table": FormerCommand("query", "blue-solvers query RESULT --table TABLE"),
    "compare": FormerCommand("query", "blue-solvers query RESULT --table LINE"),
    "spine": FormerCommand("design_spine", "blue-solvers design BLOCKS, and --geoid is --geoid-column"),
    "benchmark": FormerCommand("benchmark", "benchmark(problems, solvers) of blue_solvers, in Python"),
}
