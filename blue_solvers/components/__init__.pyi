from blue_solvers.components.choice import Components as Components
from blue_solvers.components.choice import MatrixForm as MatrixForm
from blue_solvers.components.choice import components_of as components_of
from blue_solvers.components.lattice.form import LatticeForm as LatticeForm
from blue_solvers.components.tree.tree_form import TreeForm as TreeForm
