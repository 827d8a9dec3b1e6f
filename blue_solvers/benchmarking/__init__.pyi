from blue_solvers.benchmarking.comparison import COLUMNS_OF_A_ROW as COLUMNS_OF_A_ROW
from blue_solvers.benchmarking.comparison import benchmark as benchmark
