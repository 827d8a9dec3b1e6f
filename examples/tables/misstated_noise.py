"""Is the noise as large as they say?
=====================================

An estimate, its errors and its intervals are as good as the variances that are given. Where tables overlap
the measurements themselves say how large their noise is. Over many releases p-values are spread evenly when
variances are right, and are small too often when they are not.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import fit_test
from constraint_builders import gallery
from noise_mechanisms import draw_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=9.0)
noise = draw_noise(problem, columns=250, rng=3)
claims = {"claimed 30 % less than it is": 0.7, "as it is": 1.0, "claimed 30 % more": 1.3}

figure, ax = plt.subplots()
for claim, factor in claims.items():
    claimed = problem.with_variances(problem.variances * factor)
    p_values = [fit_test(claimed, problem.truth + noise[:, k]).p_value for k in range(noise.shape[1])]
    ax.plot(np.sort(p_values), np.linspace(0, 1, len(p_values)), marker="", label=f"variance {claim}")
ax.plot([0, 1], [0, 1], color="0.46", linewidth=1, marker="")
ax.set(xlabel="p-value", ylabel="share of releases below", title="Wrong variances show in p-values, either way")
ax.legend()
plt.show()
