"""Features: texts or feature vectors to the sparse vectors or token ids that models read."""
