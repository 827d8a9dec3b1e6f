from blue_solvers.reporting.judged import judged_page as judged_page
from blue_solvers.reporting.page import Page as Page
from blue_solvers.reporting.page import html_of as html_of
from blue_solvers.reporting.stored_folder import stored_page as stored_page
