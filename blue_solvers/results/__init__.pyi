from blue_solvers.results.questions import Result as Result
from blue_solvers.results.store import write_result as write_result
