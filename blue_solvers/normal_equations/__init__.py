"""Estimates from the equations A x = b: projections, factorisations, iterations, selected inversion."""
