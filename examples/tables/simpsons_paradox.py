"""Does Simpson's paradox survive the noise?
============================================

Berkeley admitted fewer of the women than of the men, but in most departments more of them. Both statements
are about the same tables. Noisy tables that disagree can blur either one; estimates that agree cannot
contradict one another.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import estimate
from constraint_builders import gallery
from noise_mechanisms import draw_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=6.0**2)
noisy = problem.truth[:, None] + draw_noise(problem, columns=60, rng=1)
agreed = np.stack([estimate(problem, column, certify=False).values for column in noisy.T], axis=1)


def gap(values):
    """Rates of admission, women less men: in all, and by department."""
    tables = problem.observed.tables(values)  # cells first, draws last
    by_sex, by_department = tables["admitted * sex"], tables["detailed"]
    overall = by_sex[0] / by_sex.sum(0)
    within = by_department[0] / by_department.sum(0)
    return 100 * np.concatenate([[overall[1] - overall[0]], within[1] - within[0]])


# %%
# Sixty releases with other noise: the estimates' gaps scatter less around the truth than those of the published
# tables. Hardly any women applied to department B, so that its rates scatter most.

labels = ["all departments", *"ABCDEF"]
figure, ax = plt.subplots(figsize=(7.6, 4.6))
for step, (values, name, colour) in enumerate([(noisy, "published tables", "C1"), (agreed, "estimates", "C0")]):
    gaps = gap(values)
    rows = np.repeat(np.arange(7)[:, None], gaps.shape[1], axis=1) + 0.3 * step - 0.15
    ax.plot(gaps.ravel(), rows.ravel(), "o" if step else "s", color=colour, alpha=0.3, label=name)
ax.plot(gap(problem.truth[:, None])[:, 0], np.arange(7), "|", color="0.2", markersize=24, label="truth")
ax.axvline(0, color="0.46", linewidth=1)
ax.set_yticks(range(7), labels)
ax.invert_yaxis()
ax.set_xlim(-60, 80)
ax.set(
    xlabel="women's rate of admission less men's, percentage points", title="Behind in all, ahead in most departments"
)
legend = ax.legend(loc="lower right")
for handle in legend.legend_handles:
    handle.set_alpha(1)
plt.show()
