"""Kernels and solvers for sparse linear models."""
