"""Probabilistic label trees."""
