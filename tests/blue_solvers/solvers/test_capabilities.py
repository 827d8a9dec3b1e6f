"""The table of capabilities: what it promises is true, and the README shows it."""

import blue_solvers
from tests.feature_support.capabilities import as_markdown, capabilities
from tests.helpers.every import every
from tests.helpers.places import README

CAPABILITIES = capabilities()


@every("capability", CAPABILITIES)
def test_the_call_makes_the_solver(capability: object) -> None:
    call = capability.call  # type: ignore[attr-defined]
    solver = (
        eval(call, {own.__name__: own for own in blue_solvers.SOLVERS.values()})
        if "(" in call
        else blue_solvers.SOLVERS[call]()
    )
    assert solver == capability.solver  # type: ignore[attr-defined]


def test_every_solver_but_auto_is_in_the_table() -> None:
    assert {c.solver.name for c in CAPABILITIES} == set(blue_solvers.SOLVERS) - {"auto"}


def test_readme_shows_the_table() -> None:
    assert as_markdown() in README.read_text()
