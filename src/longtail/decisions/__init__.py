"""From scores to decisions: which labels a text gets."""
