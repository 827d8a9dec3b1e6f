"""How do iterative solvers converge?
=====================================

Where every cell has a variance of its own there is no closed form. Conjugate gradients then iterate; what
surrounds them decides how often. The nearest problem with a closed form is the best surrounding that we know.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import ConjugateGradient, blue
from constraint_builders import gallery
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

rng = np.random.default_rng(1)
equal = gallery.cube(4, 4)
problem = equal.with_variances(rng.uniform(1, 10, equal.observed.size))
y = add_noise(problem, np.zeros(problem.observed.size), rng=2)
best = blue(problem, "cholesky")
x, errors = best @ y, np.sqrt(best.variances())

around = {
    "two_pass": "nearest closed form",
    "multigrid": "multigrid",
    "jacobi": "scaled (the default)",
    None: "nothing",
}
figure, ax = plt.subplots()
for preconditioner, name in around.items():
    steps, distances = [], []
    for rtol in 10.0 ** -np.arange(1, 11):
        P = blue(problem, ConjugateGradient(rtol=rtol, preconditioner=preconditioner))
        approximate, info = P.apply(y)
        steps.append(info.iterations)
        distances.append((abs(approximate - x) / errors).max())
    ax.plot(steps, distances, label=name)
ax.set(yscale="log", xlabel="iterations", ylabel="largest error, in standard errors", xlim=(0, None))
ax.set_title("What conjugate gradients are preconditioned by")
ax.legend()
plt.show()

# %%
# An iteration around the closed form costs about one estimate of it. The others iterate on the constraints: a
# product with A Sigma A', and for multigrid a cycle through its coarser problems besides.
