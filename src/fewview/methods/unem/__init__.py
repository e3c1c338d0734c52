"""UNEM: generalised EM, unrolled, with its balance and temperatures learnt on base classes.

layers (the rounds of EM, and learning their numbers) -> unem (tasks of base classes, the method)
"""

from fewview.methods.unem._layers import Layers
from fewview.methods.unem._unem import UNEM

__all__ = ["UNEM", "Layers"]
