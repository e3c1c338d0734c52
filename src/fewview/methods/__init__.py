"""How queries are classified: the contract, one file or folder for each method, the estimator."""
