"""What is known of a result, as one page that needs no network."""

from blue_solvers.reporting.judged import judged_page
from blue_solvers.reporting.page import Page, html_of
from blue_solvers.reporting.stored_folder import stored_page

__all__ = ["Page", "html_of", "judged_page", "stored_page"]
