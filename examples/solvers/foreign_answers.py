"""Somebody else worked it out: is it right?
============================================

``certify`` bounds how far any answer is from the best linear unbiased estimate, whoever made it, and uses no
solver. Here scipy's LSQR solves the least-squares problem behind it to one tolerance after another.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

from blue_solvers import blue, certify
from constraint_builders import gallery
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=9.0)
y = add_noise(problem, problem.truth, rng=1)
M = sparse.csr_array(problem.marginal_matrix())  # detailed cells to tables
P = blue(problem)
errors = np.sqrt(P.variances())

iterations, proved, actual = range(1, 13), [], []
for limit in iterations:
    cells = lsqr(M / 3, y / 3, iter_lim=limit, atol=0, btol=0)[0]
    answer = M @ cells
    certificate = certify(problem, y, answer)
    proved.append(certificate.bound)
    actual.append((abs(answer - P @ y) / errors).max())

figure, ax = plt.subplots()
ax.plot(iterations, proved, label="proved by the certificate: at most")
ax.plot(iterations, actual, label="largest error of a cell, in truth")
ax.set(yscale="log", xlabel="iterations of LSQR", ylabel="distance from the estimate, in standard errors")
ax.set_title("A bound on the error of any answer")
ax.legend()
plt.show()
print(certificate)
