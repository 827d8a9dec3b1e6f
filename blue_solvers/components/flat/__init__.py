"""Components of a problem without geography."""
