"""What do the equations look like, and what does factorising them cost?
========================================================================

That tables agree is A x = 0 with a sparse A of entries -1, 0 and 1. Direct solvers factorise A Sigma A'; how
many entries the factor gets depends on the order of the equations.
"""

import matplotlib.pyplot as plt
from scipy.sparse.linalg import splu

from blue_solvers.plots import sparsity
from constraint_builders import gallery

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.cube(3, 6)  # three variables of six levels, all eight margins
A = problem.constraint_matrix()
M = (A @ A.T * 2.0).tocsc()  # A Sigma A', the variance being 2 everywhere
settings = {"diag_pivot_thresh": 0, "options": {"SymmetricMode": True}}
factors = {
    "as the equations come": splu(M, permc_spec="NATURAL", **settings).L,
    "minimum degree": splu(M, permc_spec="MMD_AT_PLUS_A", **settings).L,
}

figure = plt.figure(figsize=(8.6, 6.4))
top, bottom = figure.subfigures(2, 1, height_ratios=[1.15, 1])
ax = top.subplots()
sparsity(ax, problem)
ax.set_title(f"A: {A.nnz:,} entries in {A.shape[0]} equations between {A.shape[1]} cells", pad=14)
for ax, (order, L) in zip(bottom.subplots(1, 2), factors.items()):
    ax.spy(L, markersize=0.8, color="C1", marker="s")
    ax.set_title(f"factor, {order}: {L.nnz:,} entries", fontsize=10.5)
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# The closed form (``sea_blue``) and the two passes (``two_pass``) make none of these matrices.
