"""How many adults live in my school district, and how sure is that?
====================================================================

A district is no unit of the Census: it crosses the lines between counties and tracts. It is put together from
as few geounits as possible, added and subtracted; the estimates agree at all levels, so the answer is that of
its blocks, with an exact standard error.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, Spine, blue, entity_workload, functionals
from blue_solvers.pictures import dots_and_intervals
from constraint_builders import Entities
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

tracts = ("001000100", "001000200", "003000100", "003000200")
spine = Spine.from_geoids([f"44{tract}1{block:03}" for tract in tracts for block in range(30)])
schema = Schema({"votingage": ["minor", "adult"]})
levels = {"State": 1.2, "County": 3.0, "Tract": 2.0, "Block_Group": 4.0, "Block": 20.0}
observed = {level: {"votingage": variance} for level, variance in levels.items()}
problem = Problem(schema, observed, {level: ["votingage"] for level in spine.levels}, spine=spine)
counts = np.random.default_rng(2).poisson(12, (120, 2))  # synthetic people
y = add_noise(problem, problem.marginal_matrix() @ counts.ravel(), rng=3)

# %%
# The district: the first county without three of its blocks, and a tract of the second.

blocks = [spine.position("Block", code) for code in spine.geocodes if code.startswith("44001") and len(code) == 15]
district = [*blocks[3:], spine.position("Tract", "44003000200")]
places = Entities.from_geounits(
    spine,
    {
        "county 001": [spine.position("County", "44001")],
        "county 003": [spine.position("County", "44003")],
        "school district": district,
    },
)
P = blue(problem)
adults = entity_workload(problem, places, "votingage")[:, 1::2]
answer = functionals(P, y, adults)

# %%
# Adding up the district's own noisy blocks would be the other way.

member = places.contains.toarray().astype(float)
noisy_blocks = problem.observed.tables(y)["Block", "votingage"][:, 1]
summed, error = member @ noisy_blocks, np.sqrt(member.sum(1) * levels["Block"])
readings = {
    "sum of noisy blocks": (summed, summed - 1.96 * error, summed + 1.96 * error),
    "estimate": (
        answer.estimate,
        answer.estimate - 1.96 * answer.std_errors,
        answer.estimate + 1.96 * answer.std_errors,
    ),
}
figure, ax = plt.subplots(figsize=(7.2, 3.4))
dots_and_intervals(ax, places.names, readings, member @ counts[:, 1])
ax.set(
    xlabel="adults",
    title=f"The district, to within {1.96 * answer.std_errors[2]:.0f} people rather than {1.96 * error[2]:.0f}",
)
figure.legend(loc="outside lower left", ncols=3, markerscale=0.6)
plt.show()
