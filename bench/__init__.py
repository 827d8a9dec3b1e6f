"""Measurements of speed, memory and statistical figures, each printed as a table: ``python -m bench NAME``."""
