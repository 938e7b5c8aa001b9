"""Optional packages: whether they are installed is checked before any work starts, without importing them."""

from __future__ import annotations

from importlib.util import find_spec

from longtail.errors import MissingExtra

# Package -> the extra of longtail that installs it.
EXTRAS = {
    "torch": "nn",
    "transformers": "nn",
    "tokenizers": "nn",
    "sentencepiece": "nn",
    "pyarrow": "parquet",
    "rdflib": "skos",
    "fastapi": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
    "distributed": "dask",
    "ray": "ray",
}


def require(purpose: str, *packages: str) -> None:
    """Raise a ``MissingExtra`` if a package is not installed.

    :param purpose: What needs it, for the message.
    :param packages: Keys of ``EXTRAS``.

    >>> require("Reading Parquet", "pyarrow")
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, EXTRAS[package], purpose)
