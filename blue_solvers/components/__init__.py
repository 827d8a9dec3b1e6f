"""The decomposition of tables into components that equal variances keep apart."""

from blue_solvers.components.choice import Components, components_of
from blue_solvers.components.flat.array_form import ArrayForm
from blue_solvers.components.flat.matrix_form import MatrixForm
from blue_solvers.components.flat.sweep_form import SweepForm
from blue_solvers.components.flat.table_form import TableForm
from blue_solvers.components.tree.tree_form import TreeForm

__all__ = ["ArrayForm", "Components", "MatrixForm", "SweepForm", "TableForm", "TreeForm", "components_of"]
