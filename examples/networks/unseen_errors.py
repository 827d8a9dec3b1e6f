"""Which error would nobody see?
================================

Heights of benchmarks are levelled as differences along lines. Where lines close loops they check one another: the
*redundancy* of a line is the share of its own error that shows in its residual. It says how large a mistake must be to
be seen, and where another line is worth most. The network is synthetic.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

from blue_solvers.least_squares import eliminate_outliers, greedy_set, least_squares, worth_dropping

plt.style.use("blue_solvers.pictures.clear")

places = np.array([[0, 0], [2, 0.3], [4, 0], [1, 2], [3, 2.2], [5, 1.8], [2, 4], [4.2, 4], [6.5, 3.5], [0, 4.2]])
lines = [(0, 1), (1, 2), (0, 3), (1, 3), (1, 4), (2, 4), (2, 5), (3, 4), (4, 5), (3, 6), (4, 6), (4, 7), (5, 7), (6, 7)]
lines += [(5, 8), (6, 9)]  # nothing closes a loop through these two
names = [f"{chr(65 + a)}-{chr(65 + b)}" for a, b in lines]


def differences(pairs):
    """A row for each line: the height of its end less that of its start, A being the origin."""
    rows = np.zeros((len(pairs), len(places)))
    for row, (start, end) in zip(rows, pairs):
        row[start], row[end] = -1, 1
    return rows[:, 1:]


kilometres = np.array([np.linalg.norm(places[a] - places[b]) for a, b in lines])
variances = 4.0 * kilometres  # square millimetres
S, rng = differences(lines), np.random.default_rng(1)
heights = rng.normal(0, 20_000, len(places) - 1)
y = S @ heights + np.sqrt(variances) * rng.standard_normal(len(lines))
y[names.index("E-F")] += 30  # somebody read a rod wrongly, by 30 mm

est = least_squares(S, y, variances, names=[chr(66 + node) for node in range(len(places) - 1)], row_names=names)
fit = est.goodness_of_fit()
print(fit)
print(eliminate_outliers(est))

# %%
# The wrong line is found, because two loops check it. Of the lines to I and J nothing is checked: their redundancy is
# 0, and no mistake there would show, however large.


def draw(ax, values, title, label):
    """The network with its lines coloured."""
    segments = [places[list(pair)] for pair in lines]
    known = np.isfinite(values)
    for (start, end), own in zip(segments, known):
        ax.plot(*zip(start, end), color="0.15", linestyle=(0, (1, 1)), linewidth=0 if own else 2.5)
    drawn = LineCollection([own for own, told in zip(segments, known) if told], array=values[known], linewidth=5)
    drawn.set_cmap("viridis")
    ax.add_collection(drawn)
    ax.figure.colorbar(drawn, ax=ax, label=label, shrink=0.8)
    ax.plot(*places.T, "o", color="white", markeredgecolor="0.15", markersize=17)
    for node, place in enumerate(places):
        ax.annotate(chr(65 + node), place, ha="center", va="center")
    ax.set(title=title, aspect="equal", xlim=(-0.6, 7.1), ylim=(-0.6, 4.8))
    ax.set_axis_off()


figure, (left, right) = plt.subplots(2, 1, figsize=(7.0, 9.0))
draw(left, fit.redundancy.round(12), "Redundancy: 0 where nothing checks a line", "share of an error that shows")
detectable = fit.minimal_detectable_error(power=0.8, level=0.05)
draw(right, detectable, "Smallest error that would be found (dotted: none ever)", "millimetres")
plt.show()

# %%
# What is the next line to level, if the height of I is to be known better? Every pair that is no line yet is a
# candidate; all are judged in one pass, each exactly as if it were measured and all were solved anew. What a line that
# is there is worth for I is known as well: without F-I there would be no height of I at all.

target = np.eye(len(places) - 1)[:, 7]
candidates = [(a, b) for a in range(len(places)) for b in range(a + 1, len(places)) if (a, b) not in lines]
noise = [4.0 * np.linalg.norm(places[a] - places[b]) for a, b in candidates]
chosen, gains = greedy_set(est, target, differences(candidates), noise, 3)
before = est.variances[7]
for number, gain in zip(chosen, gains):
    start, end = candidates[number]
    print(f"{chr(65 + start)}-{chr(65 + end)}: {before:.1f} mm^2 becomes {before - gain:.1f}")
    before -= gain
worth = worth_dropping(est, target)
figure, ax = plt.subplots(figsize=(7.0, 4.6))
order = np.argsort(-worth)[:8]
shown = np.minimum(worth[order], 1.15 * worth[np.isfinite(worth)].max())
ax.barh([names[i] for i in order][::-1], shown[::-1])
for place, i in enumerate(order[::-1]):
    if np.isinf(worth[i]):
        ax.annotate("no height of I without it", (shown.max() / 50, place), va="center", color="white")
ax.set(xlabel="what the variance of I would grow by without it, in square millimetres", title="What a line is worth")
plt.show()
