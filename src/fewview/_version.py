"""The version of the package, read by the build and by `fewview --version`."""

__version__ = "0.1.0"
