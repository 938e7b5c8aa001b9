"""``python -m longtail`` is the command line."""

from longtail.cli.main import script

if __name__ == "__main__":
    script()
