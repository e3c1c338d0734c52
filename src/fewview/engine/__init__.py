"""What stands behind every method: the contract, running it on tasks, its estimator face.

A method's author needs `Method`, `State`, `Tags` and `register`, all of which `fewview` exports.
"""
