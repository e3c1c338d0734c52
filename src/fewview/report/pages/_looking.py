"""The page of a data set as it is: views, classes, missing views, distributions."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from fewview.ground._whole_files import replacing
from fewview.report.pages._shell import make_page

if TYPE_CHECKING:
    from fewview.samples._data import MultiViewData


def write_samples(output: str | PathLike[str], data: MultiViewData, title: str) -> Path:
    """Write one self-contained page about samples: what a notebook shows of them."""
    summary = data.summary()
    text = make_page(
        "looking.html", (), title=title, summary=summary.headline, body=Markup(summary.markup())
    )
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(output)
