"""Invented problems through every solver, beside exact answers: what `scripts/soak` runs."""
