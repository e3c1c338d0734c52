"""The numerical pieces that methods share: tasks as tensors, draws, distances, optimisers.

Pure functions over batched tensors; nothing here knows what a method is.
"""
