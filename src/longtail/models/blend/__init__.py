"""Blend: a logistic regression over the predictions of several methods."""
