"""Structure of the label space: frequencies, propensities, label vectors, clusters and trees."""
