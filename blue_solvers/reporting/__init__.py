"""What is known of a result, as one page that needs no network."""

from typing import TYPE_CHECKING

from constraint_builders.lazy_names import names_when_asked

__all__ = ["Page", "html_of", "judged_page", "stored_page"]

if TYPE_CHECKING:
    from blue_solvers.reporting.judged import judged_page
    from blue_solvers.reporting.page import Page, html_of
    from blue_solvers.reporting.stored_folder import stored_page
else:
    __getattr__, _ = names_when_asked(
        __name__,
        {
            "blue_solvers.reporting.judged": ("judged_page",),
            "blue_solvers.reporting.page": ("Page", "html_of"),
            "blue_solvers.reporting.stored_folder": ("stored_page",),
        },
    )
