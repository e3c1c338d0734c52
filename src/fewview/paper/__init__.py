"""The paper regenerated: every table, every figure, every claim, and some studies beyond it.

`paper.py` is what the paper prints, `studies.py` what has to be computed for each name,
`compute.py` fills and reads the store; the other files make tables, figures and verdicts of the
results. The first three need numpy, scipy, scikit-learn and torch alone
(`python -m fewview.paper`).
"""
