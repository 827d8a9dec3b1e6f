"""What every room keeps, as properties of whatever is invented: each with the test that holds it."""

INVARIANTS: dict[str, dict[str, tuple[str, str]]] = {  # by room and property the file, below tests, and its test
    "solvers": {
        "equal exact arithmetic on every feature or raise": (
            "blue_solvers/solvers/test_invented_problems.py",
            "test_every_solver_on_every_feature",
        ),
        "obey the laws of the contract": ("blue_solvers/solvers/test_conformance.py", "test_contract"),
    },
    "equations between tables": {
        "are all that hold, none twice": (
            "constraint_builders/relations/test_equations_of_invented_problems.py",
            "test_equations_are_all_that_hold_between_measured_cells",
        )
    },
    "posterior": {
        "equals exact enumeration": (
            "blue_solvers/nonnegative/posterior/test_counts_posterior.py",
            "test_agrees_with_every_table_under_gaussian_noise",
        ),
        "covers counts drawn from the prior": (
            "blue_solvers/nonnegative/posterior/test_counts_posterior.py",
            "test_intervals_cover_counts_drawn_as_assumed_beforehand",
        ),
    },
    "joint problems": {
        "equal dense least squares over all products": (
            "constraint_builders/test_joint_problem.py",
            "test_beside_dense_least_squares",
        )
    },
    "published tables": {
        "hold the lines of the published facts": (
            "constraint_builders/files/test_published_tables.py",
            "test_every_line_is_that_of_the_facts",
        ),
        "have exact joint errors": (
            "blue_solvers/results/test_published_answers.py",
            "test_differences_and_ratios_have_the_joint_covariance",
        ),
    },
    "geoids": {
        "hold the blocks whose codes begin so": (
            "constraint_builders/geography/test_geoids.py",
            "test_places_are_the_blocks_whose_geoids_begin_so",
        )
    },
    "areas": {
        "determine what their weights determine": (
            "constraint_builders/relations/test_equations_of_invented_problems.py",
            "test_what_is_wanted_is_summed_from_what_determines_it_or_refused",
        )
    },
    "certificates": {
        "prove right answers and no planted error": (
            "blue_solvers/verification/test_certificate.py",
            "test_right_answers_are_proved_and_wrong_ones_never_pass",
        )
    },
    "readers": {
        "give back what was written, in any order": (
            "constraint_builders/files/test_long_table.py",
            "test_round_trip_in_any_order",
        ),
        "take no natural mistake silently": ("first_hour/test_natural_mistakes.py", "test_none_is_silently_wrong"),
    },
    "results": {
        "equal dense algebra of their files": (
            "blue_solvers/commands/test_joint_households.py",
            "test_what_is_stored_is_the_best_estimate_of_all",
        ),
        "when damaged answer as before or raise": (
            "blue_solvers/streaming/test_kills.py",
            "test_a_damaged_result_answers_as_before_or_not_at_all",
        ),
    },
}


def as_markdown() -> str:
    """The section that the page of feature support ends with."""
    lines = ["", "## Invariants", "", "Properties that hold for random inputs, and the test of each:", ""]
    for room, held in INVARIANTS.items():
        said = "; ".join(f"{what} (`{test}`)" for what, (_, test) in held.items())
        lines.append(f"- {room}: {said}")
    return "\n".join(lines) + "\n"
