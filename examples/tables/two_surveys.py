"""Two surveys say different things: what do I believe?
=======================================================

One survey counts by age and sex, roughly; another counts the sexes well and the ages a little better, but never
one within the other. Every survey's error is known. Together they say more than either, also about the women and
men of an age, whom the better one never counted.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Schema, estimate
from blue_solvers.pictures import dots_and_intervals
from constraint_builders import problem_of_sources

plt.style.use("blue_solvers.pictures.clear")

schema = Schema({"sex": ["female", "male"], "age": ["0-17", "18-34", "35-54", "55+"]})
truth = np.array([[410.0, 520, 610, 580], [430, 510, 590, 470]])
rng = np.random.default_rng(5)
household_survey = {"age * sex": 40.0**2}
registers = {"sex": 5.0**2, "age": 30.0**2}
first = {"age * sex": rng.normal(truth.T, 40)}
second = {"sex": rng.normal(truth.sum(1), 5), "age": rng.normal(truth.sum(0), 30)}

problem, y = problem_of_sources(schema, [(household_survey, first), (registers, second)], desired=["sex * age"])
est = estimate(problem, y)

# %%
# The second survey never asked for the cells that are drawn here, and yet narrows their intervals.

lower, upper = est.interval(0.95)
alone = first["age * sex"].T
readings = {
    "household survey alone": (alone.ravel(), alone.ravel() - 1.96 * 40, alone.ravel() + 1.96 * 40),
    "both surveys": (est.values, lower, upper),
}
labels = [f"{sex}, {age}" for sex in ("female", "male") for age in ("0-17", "18-34", "35-54", "55+")]
figure, ax = plt.subplots(figsize=(7.2, 4.8))
dots_and_intervals(ax, labels, readings, truth.ravel())
ax.set(xlabel="people", title="Margins from elsewhere sharpen every cell")
figure.legend(loc="outside lower left", ncols=3)
plt.show()
