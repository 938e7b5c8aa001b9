"""Solvers, tree models and matrix products for sparse linear models."""
