"""With the extra ``plots``: matplotlib."""

from matplotlib.figure import Figure

from blue_solvers import blue
from blue_solvers.plots import variance_reduction
from constraint_builders import gallery


def test_a_picture_is_drawn() -> None:
    axes = Figure().subplots()
    variance_reduction(axes, blue(gallery.berkeley()))
    assert axes.has_data()
