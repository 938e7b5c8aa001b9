"""The HTTP service: models behind our own interface and those of other programs, and a web page."""
