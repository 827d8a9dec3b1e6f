"""The closed form without geography: sweeps over the intersections of the tables."""
