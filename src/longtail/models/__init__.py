"""One file per method; each reads like its paper."""
