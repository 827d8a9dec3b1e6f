"""All my forecasts are wrong together: does that matter?
=========================================================

A wrong assumption about the season moves all forecasts of a week the same way. Noise that cells share is
given as a low-rank part of the covariance, which is never formed. Who leaves it out trusts sums too much: the
errors that he believes are too small.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, blue
from constraint_builders import LowRankPlusDiagonal

plt.style.use("blue_solvers.pictures.clear")

stores = 12
S = np.vstack([np.ones(stores), np.kron(np.eye(3), np.ones(4)), np.eye(stores)])
own = np.concatenate([[16.0], np.full(3, 9.0), np.full(stores, 4.0)])
shares = np.linspace(0, 1.5, 13)
believed, actual, informed = [], [], []
independent = blue(Problem.from_summing_matrix(S, own))
weights = independent.T @ np.eye(S.shape[0])[0]  # of every forecast in the company's total: one row of the operator
for share in shares:
    factor = share * np.sqrt(S.sum(1))[:, None]  # one error that all forecasts have in common
    covariance = LowRankPlusDiagonal(own, factor)
    actual.append(np.sqrt(weights @ (covariance @ weights)))
    believed.append(np.sqrt(independent.variances()[0]))
    informed.append(np.sqrt(blue(Problem.from_summing_matrix(S, covariance=covariance)).variances()[0]))

figure, ax = plt.subplots()
ax.plot(shares, believed, label="believed, without the shared error")
ax.plot(shares, actual, label="what that estimate really errs by")
ax.plot(shares, informed, label="estimate that knows the shared error")
ax.set(xlabel="size of the shared error", ylabel="standard error of the company's total", ylim=(0, None))
ax.set_title("A shared error that is left out makes a total look too sure")
ax.legend()
plt.show()
