"""A method as a scikit-learn estimator: fit, predict, explain, calibrate, save; laws to test it."""
