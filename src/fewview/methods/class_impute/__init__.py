"""Class-aware imputation: classes that lack a view borrow it from classes that are like them.

One file; a folder since `methods/` is full.
"""

from fewview.methods.class_impute._class_impute import BaseClasses, ClassImpute

__all__ = ["BaseClasses", "ClassImpute"]
