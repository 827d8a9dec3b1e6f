"""The subcommands: the module of each, of which no more are loaded than are asked for, and what it is for."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    purpose: str


COMMANDS = {
    "estimate": Command(
        "estimate",
        "make noisy tables consistent: best linear unbiased estimates with standard errors and intervals",
    ),
    "joint": Command(
        "estimate_jointly",
        "estimate together what was measured apart of the same people and places: releases of two products, or tables",
    ),
    "info": Command(
        "info",
        "describe noisy tables: sizes, rank, which assumptions hold, which solver auto would take and why",
    ),
    "simulate": Command(
        "simulate",
        "make a noisy release, in the layout of noisy measurement files, from true counts by block",
    ),
    "query": Command("query", "answer a question about any geounits, with an interval, from what estimate stored"),
    "table": Command(
        "by_table",
        "published tables of any places by their GEOIDs, with intervals, from what estimate stored",
    ),
    "tables": Command(
        "which_tables",
        "the published tables that a stored result can answer, and why it cannot answer the others",
    ),
    "compare": Command(
        "compare_lines",
        "shares, ratios, differences and ranks of lines of published tables, with exact joint errors",
    ),
    "report": Command(
        "report_page",
        "show a result on one page: its fit, its certificate, the largest adjustments, its precision, its figures",
    ),
    "spine": Command(
        "design_spine",
        "build a geographic spine around off-spine entities, and judge it by exact variances before any noise is drawn",
    ),
    "benchmark": Command(
        "benchmark",
        "measure solvers side by side: seconds, memory, proved error, on problems of the gallery or of your own",
    ),
    "demo": Command(
        "demo",
        "measure the admissions to Berkeley of 1973 with noise, estimate them, and compare with the truth",
    ),
}
