"""My tables are in a file: what do I do?
======================================

One row a published cell, in a CSV file, with how precise it is. Four cells and their margins, from a file as it comes:
margins of error of 90 %, thousands with commas, and a cell that was suppressed.
"""

import io
import textwrap

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import estimate
from blue_solvers.pictures import dots_and_intervals
from constraint_builders.files import estimates_frame, read_long_table

plt.style.use("blue_solvers.pictures.clear")

file = io.StringIO(
    textwrap.dedent(
        """\
        table,   sex,    region, estimate, moe_90
        sex,     female, *,      "10,480", 300
        sex,     male,   *,      "9,870",  300
        region,  *,      north,  "12,100", 350
        region,  *,      south,  "8,600",  350
        """
    )
)
