"""The posterior of non-negative whole counts, by lattice moves with exact acceptance."""
