"""What a page in a browser shows of the names that its lines have left: a table for every estimate."""

from __future__ import annotations

import json
from math import floor, log10
from typing import Any

import numpy as np

from blue_solvers import Estimate

MOST_ROWS = 200
COLUMNS = ["table", "cell", "measured", "estimate", "standard error"]


def answers(names: dict[str, Any]) -> str:
    """The estimates among some names, as JSON: for each its name, `columns`, `rows` of text, how many are left."""
    shown: dict[int, dict[str, Any]] = {}
    for name, value in names.items():
        if isinstance(value, Estimate) and id(value) not in shown:
            shown[id(value)] = {"name": name, "columns": COLUMNS, "rows": _rows(value), "left": _left(value)}
    return json.dumps(list(shown.values()))


def _left(estimate: Estimate) -> int:
    return max(0, int(estimate.layout.size) - MOST_ROWS)


def _measured(estimate: Estimate) -> dict[Any, Any]:
    """What was measured, by table; NaN where nothing was."""
    problem = estimate.problem
    return dict(problem.observed.tables(np.where(problem.unmeasured, np.nan, estimate.y)))


def _rows(estimate: Estimate) -> list[list[str]]:
    layout, measured = estimate.layout, _measured(estimate)
    rows = []
    for place in range(min(int(layout.size), MOST_ROWS)):
        name, cell = layout.locate(place)
        value, error = float(estimate.values[place]), float(estimate.std_errors[place])
        digits = min(12, max(0, 1 - floor(log10(error)))) if 0 < error < np.inf else 2
        given = float(measured[name][cell]) if name in measured else np.nan
        title = " / ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        published = "" if np.isnan(given) else f"{given:,.{digits}f}"
        texts = [title, layout.labels(place).strip("()"), published, f"{value:,.{digits}f}", f"{error:.2g}"]
        rows.append(texts)
    return rows
