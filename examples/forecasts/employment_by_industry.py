"""How sure are forecasts of employment by industry, and which of them should be better?
========================================================================================

Fifteen industries and seven groups of them are forecast each by itself, so that forecasts do not add up. Reconciled
ones do, but how far may they be off? Intervals of normal errors and of the sample's own errors differ; years of months
tell which to believe. Employees of the United States, in thousands: Current Employment Statistics of the Bureau of
Labor Statistics.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers import ExactMinTrace
from blue_solvers.examples import EMPLOYMENT
from blue_solvers.least_squares import least_squares, worth_measuring

plt.style.use("blue_solvers.pictures.clear")

frame = pl.read_csv(EMPLOYMENT)
industries = frame.columns[1:]
groups = {"all": (0, 15), "private": (0, 14), "goods": (0, 4), "services": (4, 15), "private services": (4, 14)}
groups |= {"manufacturing": (2, 4), "trade and transport": (4, 8)}
nodes = [*groups, *industries]
leaves = np.eye(len(industries))
S = np.vstack([*(leaves[start:stop].sum(axis=0) for start, stop in groups.values()), leaves])
series = S @ frame.drop("month").to_numpy().T.astype(float)

# %%
# Each series is forecast one month ahead by itself, from five years before: its change on the year follows from the
# changes that the last two months had.


def next_month(past):
    """The forecast of one series."""
    changes = past[12:] - past[:-12]
    lagged = np.column_stack([np.ones(changes.size - 2), changes[1:-1], changes[:-2]])
    return past[-12] + np.linalg.lstsq(lagged, changes[2:])[0] @ [1, changes[-1], changes[-2]]


tested, sample = 60, 36
months = np.arange(series.shape[1] - tested - sample, series.shape[1])
forecasts = np.array([[next_month(own[now - 60 : now]) for now in months] for own in series])
came = series[:, months]

# %%
# Every month is reconciled by the errors of the three years before it.

kinds = {"normality": "normal errors", "conformal": "the sample's own errors"}
held, centres, bounds = {kind: [] for kind in kinds}, [], []
for now in range(sample, sample + tested):
    before = slice(now - sample, now)
    own = ExactMinTrace("wls_var").fit(S, forecasts[:, [now]], came[:, before], forecasts[:, before])
    for kind in kinds:
        found = own.predict(level=[90], intervals_method=kind)
        lower, upper = found["quantiles"][:, 0].T
        held[kind].append((lower <= came[:, now]) & (came[:, now] <= upper))
    centres.append(found["mean"][0, 0])
    bounds.append(found["quantiles"][0, 0])

truth, years = came[0, sample:], 1990 + months[sample:] / 12
figure, ax = plt.subplots()
ax.fill_between(years, *(np.transpose(bounds) - truth), alpha=0.25, linewidth=0, label="90 % interval")
ax.plot(years, forecasts[0, sample:] - truth, "o", markersize=4, label="forecast by itself")
ax.plot(years, np.array(centres) - truth, label="reconciled")
ax.axhline(0, color="0.4", linewidth=0.8)
ax.set(xlabel="year", ylabel="thousands above what came", title="All employees, a month ahead")
figure.legend(loc="outside lower left", ncols=3)
plt.show()

# %%
# Do nine in ten months lie within? Not in intervals that take errors for normal and independent: industries err
# together. Those of the sample's errors, each reconciled like the forecast, hold what they promise.

figure, ax = plt.subplots(figsize=(7.0, 6.0))
for (kind, label), marker in zip(kinds.items(), "os"):
    shares = 100 * np.mean(held[kind], axis=0)
    print(f"{label}: {shares.mean():.0f} % of all, {shares[0]:.0f} % of the total")
    ax.plot(shares, np.arange(len(nodes)), marker, label=label)
ax.axvline(90, color="0.4", linewidth=0.8)
ax.set_yticks(np.arange(len(nodes)), nodes)
ax.invert_yaxis()
ax.set(xlabel="% of months in intervals of 90 %", title="Which intervals keep their promise")
figure.legend(loc="outside lower left", ncols=2)
plt.show()

# %%
# Do the forecasts of the last month contradict one another more than their errors explain, now that these may be
# correlated? No, rather less. Of which series would a second forecast, as good as the first, tell most of the total?

last = ExactMinTrace("mint_shrink").fit(
    S, forecasts[:, [-1]], came[:, -sample - 1 : -1], forecasts[:, -sample - 1 : -1]
)
est = least_squares(S, forecasts[:, -1], last.errors.covariance, names=industries, row_names=nodes)
print(est.goodness_of_fit())
gains = worth_measuring(est, S[0], S, last.errors.diagonal)
variance = est.functionals(S[0]).variances[0]
print(f"all employees: standard error {variance**0.5:.0f} thousand")
for place in np.argsort(-gains)[:4]:
    print(f"with a second forecast of {nodes[place]}: {(variance - gains[place]) ** 0.5:.0f}")
