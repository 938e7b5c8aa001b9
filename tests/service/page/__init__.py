"""Tests of the page of the service, in a browser."""
