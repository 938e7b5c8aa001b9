"""Comparison: several methods trained and evaluated side by side on the same data."""
