"""The exact estimate over areas that cross, component by component; see `area_form`."""
