"""Every method can be imported from the top of the package."""

from __future__ import annotations

import pytest

import fewview
from fewview.methods.registry import create, names


@pytest.mark.parametrize("name", names())
def test_methods_are_imported_from_fewview(name: str) -> None:
    cls = type(create(name))
    assert getattr(fewview, cls.__name__) is cls
    assert cls.__name__ in fewview.__all__
