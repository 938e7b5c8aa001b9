"""Recipes: which method on which corpus, and the metrics to expect."""
