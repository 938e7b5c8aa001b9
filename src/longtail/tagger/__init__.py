"""The tagger: features, model and label names as one object that is trained, saved and loaded."""
