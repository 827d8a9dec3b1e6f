"""What non-negativity costs."""
