"""From scores to decisions: calibrated probabilities, constraints, and which labels a text gets."""
