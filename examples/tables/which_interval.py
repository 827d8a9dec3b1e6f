"""Which interval do I need?
============================

Normal intervals (``z``) are exact for Gaussian noise. Those with standard errors from simulated noise (``t``)
are as well, but lean on the normal law all the same. Intervals that rest on order statistics of simulated errors
(``distribution_free``) are wider, and on average over the simulations cover what they claim under every law.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, blue, half_widths
from constraint_builders import gallery
from noise_mechanisms import draw_noise

plt.style.use("blue_solvers.pictures.clear")

level = 0.99
laws = ["gaussian", "laplace"]
schema, names = gallery.berkeley().schema, gallery.berkeley().observed.names
ways = {"z": {}, "t": {"draws": 199}, "distribution_free": {"draws": 199}}
figure, ax = plt.subplots()
for law, marker in zip(laws, "os"):
    problem = Problem(schema, dict.fromkeys(names, 9.0), noise=law)
    P = blue(problem)
    errors = P @ draw_noise(problem, columns=4000, rng=1)
    widest = half_widths(P, level)
    for number, (method, options) in enumerate(ways.items()):
        width = half_widths(P, level, method, rng=2, **options)
        covered = 100 * np.mean(abs(errors) <= width[:, None])
        ax.plot(np.mean(width / widest), covered, marker, color=f"C{number}")
        ax.annotate(f"{method}, {law}", (np.mean(width / widest), covered), (8, -4), textcoords="offset points")
ax.axhline(100 * level, color="0.46", linewidth=1, zorder=0)
ax.margins(x=0.3, y=0.2)
ax.set(xlabel="width, relative to the normal interval", ylabel="truths in their interval, %")
ax.set_title("At 99 %, Laplace noise needs intervals that know its tails")
plt.show()
