"""Several methods side by side on the same data."""
