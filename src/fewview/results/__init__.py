"""What was found, and how sure are we? Cells, metrics, the store, summaries, comparisons.

Needs no torch: a store is read and compared in an instant.
"""
