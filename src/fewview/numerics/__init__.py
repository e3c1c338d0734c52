"""Numerical pieces that methods share: arrays in, arrays out; no method, no data set."""
