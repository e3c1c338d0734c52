"""Frozen suites of tasks: one file for each, and what reads them."""
