"""The decomposition of tables into components that equal variances keep apart."""

from blue_solvers.components.choice import Components, MatrixForm, components_of
from blue_solvers.components.lattice.form import LatticeForm
from blue_solvers.components.tree.tree_form import TreeForm

__all__ = ["Components", "LatticeForm", "MatrixForm", "TreeForm", "components_of"]
