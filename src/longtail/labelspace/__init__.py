"""Structure among the labels."""
