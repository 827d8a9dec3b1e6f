"""Problems that are made from another one, for a part of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from constraint_builders import Problem, Schema


def derived_problem(
    of: Problem, schema: Schema, observed: Mapping[str, Any], desired: Mapping[str, Sequence[str]], **places: Any
) -> Problem:
    """A problem of the same measurements in another form.

    Where all observed tables are desired, also those that nothing determines (`Problem.observing`), these come out as
    anything here too: as if what is not measured had been measured as 0.
    """
    any_will_do = of.desired is of.observed and bool(of.unmeasured.any())
    made = Problem(schema, observed, desired, undetermined="nan" if any_will_do else "error", **places)
    return made if made.undetermined is None else made.determined
