"""The paper regenerated: every table, every figure, every claim, and some studies beyond it.

`_printed` is what the paper prints, `_studies` what has to be computed for each name, `_compute`
fills and reads the store. Of the results `_beside` makes tables, `_curves` and `_task_figures`
make figures, `_claims` judges sentences; `_make` finds the maker of a name.
The first three need numpy, scipy, scikit-learn and torch alone (`python -m fewview.paper`).
"""
