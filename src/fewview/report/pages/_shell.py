"""What every page is made by: one file, its style, its script, a strict policy.

Style and colours of pages about samples are those of the report; a script runs only if it is the
one named in the policy.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fewview.drawing._looks import PALETTE
from fewview.ground._markup import STYLE

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    # Everything is escaped unless it was built as markup: names in tables and stores are anybody's.
    return Environment(
        loader=ChoiceLoader(
            [PackageLoader("fewview.report.pages"), PackageLoader("fewview.report")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def make_page(
    template: str, scripts: tuple[str, ...] = ("sorting.js", "samples.js"), **values: Any
) -> str:
    """A page from a template, with the scripts that it runs."""
    environment = _environment()
    assert environment.loader is not None
    sources = (environment.loader.get_source(environment, name)[0] for name in scripts)
    script = "\n".join(sources)
    return environment.get_template(template).render(
        palette=PALETTE,
        marks=Markup(STYLE),
        script=Markup(script),
        # What the policy knows the script by; no other one runs.
        policy=Markup(f"'sha256-{_digest(script)}'" if script else "'none'"),
        **values,
    )


def piece(macro: str, *values: Any) -> str:
    """A part of a page, made by a macro that pages share."""
    return str(getattr(_environment().get_template("parts.html").module, macro)(*values))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
