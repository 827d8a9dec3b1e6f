"""The constants of the Newton steps, shared by the compiled kernel and its numpy reference."""

TARGET = 1e-13  # residual of the rows at which the steps end, relative to the largest count
ACCEPTED = 1e-9  # relative residual below which steps that no longer halve it are rounding
MAX_STEPS = 200
MAX_HALVINGS = 60

# Line search, on the dual function and its slope along the step.
SUFFICIENT_DECREASE = 1e-4
FLATTENED = 0.8
AS_STEEP = 0.9

# Diagonal of rows held exactly, relative to itself; and how much less a row gets that no free cell moves.
LEAST_SHIFT = 1e-12
LARGEST_SHIFT = 1e-3
RELAXED = 0.25
