"""Noise of whole numbers that leaves given sums exactly as they are (integer subspace differential privacy)."""
