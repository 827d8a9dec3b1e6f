from blue_solvers.testing.adjoints import dot_test as dot_test
from blue_solvers.testing.check_report import CheckReport as CheckReport
from blue_solvers.testing.conformance import PROPERTIES as PROPERTIES
from blue_solvers.testing.conformance import check_solver as check_solver
from blue_solvers.testing.small_problems import problems as problems
