"""``python -m longtail`` is the command line."""

from longtail.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
