"""From scores to decisions: calibrated probabilities, and what follows from them."""
